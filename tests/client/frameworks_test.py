"""Frameworks for agents, in an environment of their own (`make venv-agents`): OpenAI's agents
package, pydantic-ai, smolagents and haystack. Each with the calls that its users make first;
whether a model of this size says something sensible does not matter."""

import asyncio
from typing import Literal

import agents
import anthropic
import openai
import pytest
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from smolagents import OpenAIServerModel

from other_packages import (KEY, QUESTION, Fox, fixture_base,  # pylint: disable=unused-import
                            fixture_server)
from serving import NAME

LENGTH = 300

# Warnings of these packages about themselves are not this test's concern.
pytestmark = pytest.mark.filterwarnings("default")


def with_client(run, client):
    """Runs a coroutine function with a client, which is closed then."""
    async def closing():
        async with client:
            await run(client)

    asyncio.run(closing())


@agents.function_tool
def weather(city: Literal["Oslo", "Rome"]) -> str:
    """The weather in a city."""
    return "sunny in " + city


@pytest.mark.parametrize("api", ["responses", "chat"])
def test_openai_agents(base, api):
    agents.set_tracing_disabled(True)  # traces go to OpenAI

    async def run(client):
        model = (agents.OpenAIResponsesModel(NAME, client) if api == "responses" else
                 agents.OpenAIChatCompletionsModel(NAME, client))

        def agent(**fields):
            settings = {"max_tokens": LENGTH, "temperature": 0, **fields.pop("settings", {})}
            return agents.Agent(name="a", instructions="Be brief.", model=model,
                                model_settings=agents.ModelSettings(**settings), **fields)

        plain = await agents.Runner.run(agent(settings={"truncation": "auto"}), QUESTION)
        assert plain.final_output
        streamed = agents.Runner.run_streamed(agent(), QUESTION)
        events = [event async for event in streamed.stream_events()]
        assert len(events) > 5 and streamed.final_output == plain.final_output
        shaped = await agents.Runner.run(agent(output_type=Fox), QUESTION)
        assert isinstance(shaped.final_output, Fox)
        forced = {"tool_choice": "required", "parallel_tool_calls": False}
        called = await agents.Runner.run(agent(tools=[weather], settings=forced), QUESTION)
        outputs = [item.output for item in called.new_items
                   if isinstance(item, agents.ToolCallOutputItem)]
        assert outputs and outputs[0] in ("sunny in Oslo", "sunny in Rome")
        assert called.final_output

    with_client(run, openai.AsyncOpenAI(base_url=base, api_key=KEY))


@pytest.mark.parametrize("api", ["responses", "chat", "messages"])
def test_pydantic_ai(server, base, api):
    settings = {"max_tokens": LENGTH, "temperature": 0}

    async def run(client):
        if api == "messages":
            model = AnthropicModel(NAME, provider=AnthropicProvider(anthropic_client=client))
        else:
            kind = OpenAIResponsesModel if api == "responses" else OpenAIChatModel
            model = kind(NAME, provider=OpenAIProvider(openai_client=client))
        plain = await Agent(model, system_prompt="Be brief.").run(QUESTION, model_settings=settings)
        assert plain.output
        async with Agent(model, system_prompt="Be brief.").run_stream(
                QUESTION, model_settings=settings) as stream:
            assert "".join([text async for text in stream.stream_text(delta=True)]) == plain.output
        by_tool = await Agent(model, output_type=Fox).run(QUESTION, model_settings=settings)
        assert isinstance(by_tool.output, Fox)
        if api == "messages":  # it has no schemas of answers
            return
        native = await Agent(model, output_type=NativeOutput(Fox)).run(
            QUESTION, model_settings=settings)
        assert isinstance(native.output, Fox)

    with_client(run, anthropic.AsyncAnthropic(base_url=server.base, api_key=KEY)
                if api == "messages" else openai.AsyncOpenAI(base_url=base, api_key=KEY))


def test_smolagents(base):
    model = OpenAIServerModel(model_id=NAME, api_base=base, api_key=KEY, max_tokens=LENGTH)
    question = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    answer = model(question, stop_sequences=["Observation:"])
    assert answer.content and answer.token_usage.output_tokens > 0
    assert any(delta.content for delta in model.generate_stream(question))


def test_haystack(base):
    pieces = []

    def ask(**fields):
        maker = OpenAIChatGenerator(api_key=Secret.from_token(KEY), model=NAME, api_base_url=base,
                                    generation_kwargs={"max_tokens": LENGTH, "temperature": 0},
                                    **fields)
        return maker.run([ChatMessage.from_user(QUESTION)])["replies"][0].text

    whole = ask()
    assert whole and ask(streaming_callback=pieces.append) == whole
    assert len(pieces) > 3
