"""Clients that need older versions of the openai package, in an environment of their own
(`make venv-clients`): litellm, LangChain, LlamaIndex and the command llm. Each with the calls that
its users make first; whether a model of this size says something sensible does not matter."""

import json
import os
import subprocess
import sys

import litellm
import pytest
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from llama_index.core.llms import ChatMessage
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

from other_packages import (KEY, QUESTION, Fox, fixture_base,  # pylint: disable=unused-import
                            fixture_server)
from serving import NAME

MESSAGES = [{"role": "user", "content": QUESTION}]

# Warnings of these packages about themselves are not this test's concern.
pytestmark = pytest.mark.filterwarnings("default")


def weather(city: str) -> str:
    """The weather in a city."""
    return city


def test_litellm(base):
    common = {"model": "openai/" + NAME, "api_base": base, "api_key": KEY, "max_tokens": 120}
    answer = litellm.completion(messages=MESSAGES, temperature=0, **common)
    text = answer.choices[0].message.content
    assert text and answer.usage.completion_tokens > 0
    chunks = litellm.completion(messages=MESSAGES, temperature=0, stream=True, **common)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
    shaped = litellm.completion(messages=MESSAGES, response_format=Fox, **common)
    Fox.model_validate_json(shaped.choices[0].message.content)
    tool = {"type": "function", "function": {
        "name": "weather", "parameters": {"type": "object", "required": ["city"],
                                          "properties": {"city": {"enum": ["Oslo", "Rome"]}}}}}
    called = litellm.completion(messages=MESSAGES, tools=[tool], tool_choice="required", **common)
    call, = called.choices[0].message.tool_calls
    assert json.loads(call.function.arguments)["city"] in ("Oslo", "Rome")
    vectors = litellm.embedding(model="openai/" + NAME, api_base=base, api_key=KEY,
                                input=["a", "b"]).data
    assert len(vectors) == 2 and len(vectors[0]["embedding"]) == 192
    for wrong, error in (({"api_key": "sk-wrong-0123456789"}, litellm.AuthenticationError),
                         ({"model": "openai/none"}, litellm.NotFoundError),
                         ({"top_p": 3}, litellm.BadRequestError)):
        with pytest.raises(error):
            litellm.completion(messages=MESSAGES, **{**common, **wrong})


def test_langchain(base):
    model = ChatOpenAI(model=NAME, base_url=base, api_key=KEY, temperature=0, max_tokens=120)
    text = model.invoke("Tell me a story about a fox.").content
    assert text
    assert "".join(part.content for part in model.stream("Tell me a story about a fox.")) == text
    for method in ("json_schema", "function_calling"):
        fox = model.with_structured_output(Fox, method=method).invoke("Describe a fox.")
        assert isinstance(fox, Fox)
    called = model.bind_tools([weather], tool_choice="weather").invoke("What is the weather?")
    assert called.tool_calls[0]["name"] == "weather"
    assert all(answer.content for answer in model.batch(["One.", "Two.", "Three."]))
    # It sends token ids, of OpenAI's tokenizer: of other models it must be told not to.
    vectors = OpenAIEmbeddings(model=NAME, base_url=base, api_key=KEY,
                               check_embedding_ctx_length=False).embed_documents(["a", "b"])
    assert [len(vector) for vector in vectors] == [192, 192]


def test_llama_index(base):
    model = OpenAILike(model=NAME, api_base=base, api_key=KEY, is_chat_model=True, temperature=0,
                       max_tokens=60, is_function_calling_model=True)
    messages = [ChatMessage(role="user", content="Tell me a story about a fox.")]
    text = model.chat(messages).message.content
    assert text
    assert "".join(part.delta or "" for part in model.stream_chat(messages)) == text
    plain = OpenAILike(model=NAME, api_base=base, api_key=KEY, temperature=0, max_tokens=10)
    assert plain.complete("Once upon a time").text
    embedding = OpenAILikeEmbedding(model_name=NAME, api_base=base, api_key=KEY)
    assert len(embedding.get_text_embedding("a fox")) == 192
    assert len(embedding.get_text_embedding_batch(["a", "b", "c"])) == 3


def test_the_command_llm(base, tmp_path):
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: sluice\n  model_name: {NAME}\n  api_base: {base}\n  supports_schema: true\n"
        "  api_key_name: sluice\n")
    program = os.path.join(os.path.dirname(sys.executable), "llm")
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path)}

    def llm(*arguments):
        done = subprocess.run([program, "-m", "sluice", "--key", KEY, *arguments],
                              capture_output=True, text=True, timeout=60, env=environment,
                              check=False)
        assert done.returncode == 0, done
        return done.stdout

    assert llm("-o", "max_tokens", "20", "Hello").strip()
    assert llm("--no-stream", "-o", "max_tokens", "20", "Hello").strip()
    schema = json.dumps(Fox.model_json_schema())
    Fox.model_validate_json(llm("-o", "max_tokens", "60", "--schema", schema, "A fox"))
