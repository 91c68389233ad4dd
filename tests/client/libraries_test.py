"""Libraries of prompts, typed answers and agents, in an environment of their own (`make
venv-libraries`): AutoGen, Cohere, DSPy, Guidance, Mistral, Outlines, Semantic Kernel and Strands.
Each with the calls that its users make first; whether a model of this size says something sensible
does not matter."""

import asyncio
import json
import re
from typing import Literal

import cohere
import dspy
import guidance
import openai
import outlines
import pytest
import strands
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from guidance.models import OpenAI as GuidanceModel
from mistralai.client import Mistral
from strands.models.openai import OpenAIModel

from other_packages import (KEY, QUESTION, Fox, fixture_base,  # pylint: disable=unused-import
                            fixture_server)
from serving import NAME

# Warnings of these packages about themselves are not this test's concern.
pytestmark = pytest.mark.filterwarnings("default")


def feed(animal: Literal["fox", "crow"]) -> str:
    """Feeds an animal."""
    return f"the {animal} is fed"


def test_autogen(base):
    async def converse():
        client = OpenAIChatCompletionClient(
            model=NAME, base_url=base, api_key=KEY, max_tokens=60,
            model_info={"vision": False, "function_calling": True, "json_output": True,
                        "structured_output": True, "family": "unknown"})
        agent = AssistantAgent("keeper", client, tools=[feed])
        answer = await agent.run(task=QUESTION)
        assert answer.messages[-1].content
        agent = AssistantAgent("teller", client, model_client_stream=True)
        parts = [part async for part in agent.run_stream(task=QUESTION)]
        chunks = [part.content for part in parts
                  if isinstance(part, ModelClientStreamingChunkEvent)]
        assert "".join(chunks) == parts[-1].messages[-1].content
        await client.close()

    asyncio.run(converse())


def test_cohere_ranks_documents(server):
    documents = ["rain falls", "the fox runs", "snow"]
    for version in (cohere.Client, cohere.ClientV2):
        client = version(KEY, base_url=server.base)
        ranked = client.rerank(model=NAME, query="a fox", documents=documents, top_n=2).results
        assert len(ranked) == 2 and ranked[0].relevance_score >= ranked[1].relevance_score
        assert {result.index for result in ranked} < {0, 1, 2}


def test_dspy(base):
    model = dspy.LM("openai/" + NAME, api_base=base, api_key=KEY, max_tokens=40, cache=False)
    assert len(model(QUESTION, n=2)) == 2
    shaped = model(QUESTION, response_format=Fox, max_tokens=120)[0]
    Fox.model_validate_json(shaped)


def test_guidance(base):
    model = GuidanceModel(NAME, base_url=base, api_key=KEY)
    with guidance.user():
        model += QUESTION
    with guidance.assistant():
        model += guidance.gen("story", max_tokens=30)
    assert model["story"]
    with guidance.user():
        model += "Which fox?"
    with guidance.assistant():
        model += guidance.json("fox", schema=Fox, max_tokens=60)
    Fox.model_validate_json(model["fox"])


def test_mistral(server):
    client = Mistral(api_key=KEY, server_url=server.base)
    common = {"model": NAME, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
    text = client.chat.complete(max_tokens=40, **common).choices[0].message.content
    events = client.chat.stream(max_tokens=40, **common)
    assert "".join(event.data.choices[0].delta.content or "" for event in events
                   if event.data.choices) == text
    tool = {"type": "function", "function": {
        "name": "feed", "parameters": {"type": "object", "required": ["animal"],
                                       "properties": {"animal": {"enum": ["fox", "crow"]}}}}}
    message = client.chat.complete(max_tokens=120, tools=[tool], tool_choice="any",
                                   **common).choices[0].message
    assert json.loads(message.tool_calls[0].function.arguments)["animal"] in ("fox", "crow")
    assert len(client.embeddings.create(model=NAME, inputs=["a", "b"]).data) == 2


def test_outlines(base):
    client = openai.OpenAI(base_url=base, api_key=KEY)
    for model in (outlines.from_openai(client, NAME), outlines.from_vllm(client, NAME)):
        assert model(QUESTION, max_tokens=20)
        Fox.model_validate_json(model(QUESTION, Fox, max_tokens=60))
    assert model("Do foxes fly?", Literal["yes", "no"]) in ("yes", "no")
    letters = "".join(model.stream("x", outlines.types.Regex("[a-c]{3}")))
    assert re.fullmatch("[a-c]{3}", letters)


def test_semantic_kernel(base):
    # Here, because this import warns, and a warning while tests are collected is an error.
    # pylint: disable=import-outside-toplevel
    from semantic_kernel import Kernel
    from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
    from semantic_kernel.connectors.ai.open_ai import (OpenAIChatCompletion,
                                                       OpenAIChatPromptExecutionSettings)
    from semantic_kernel.contents import ChatHistory
    from semantic_kernel.functions import kernel_function

    class Zoo:
        @kernel_function(description="Feeds the fox.")
        def feed(self, twice: bool) -> str:
            return str(twice)

    async def converse():
        service = OpenAIChatCompletion(
            ai_model_id=NAME, async_client=openai.AsyncOpenAI(base_url=base, api_key=KEY))
        kernel = Kernel()
        kernel.add_service(service)
        kernel.add_plugin(Zoo(), "zoo")
        history = ChatHistory()
        history.add_user_message(QUESTION)
        plain = OpenAIChatPromptExecutionSettings(max_tokens=30, temperature=0)
        text = str(await service.get_chat_message_content(history, plain, kernel=kernel))
        assert text
        parts = service.get_streaming_chat_message_content(history, plain, kernel=kernel)
        assert "".join([str(part) async for part in parts]) == text
        forced = OpenAIChatPromptExecutionSettings(
            max_tokens=120,
            function_choice_behavior=FunctionChoiceBehavior.Required(auto_invoke=False))
        message = await service.get_chat_message_content(history, forced, kernel=kernel)
        call = next(item for item in message.items if item.content_type == "function_call")
        assert call.name == "zoo-feed"
        assert json.loads(call.arguments)["twice"] in (True, False)

    asyncio.run(converse())


def test_strands(base):
    # Half of the sampled answers do not end within 500 tokens, which this package refuses.
    model = OpenAIModel(client_args={"base_url": base, "api_key": KEY}, model_id=NAME,
                        params={"max_tokens": 500, "seed": 2})
    answer = strands.Agent(model=model, tools=[strands.tool(feed)], callback_handler=None)(QUESTION)
    assert str(answer) and answer.metrics.accumulated_usage["outputTokens"] > 0
    typed = strands.Agent(model=model, callback_handler=None)(QUESTION, structured_output_model=Fox)
    assert isinstance(typed.structured_output, Fox)
