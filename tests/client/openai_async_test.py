"""Many streams at once through the async client: each says what it says alone."""

import asyncio
import os
import signal

import openai
import pytest

from processes import functions_of
from serving import ENDLESS, LONG_WAIT, NAME, OVER_GATEWAY, PATIENCE, SLOW, demo_server

STREAMS = 50


def fields_of(i):
    """Different prompts, lengths and seeds; half of them sampled."""
    return {"model": NAME, "max_completion_tokens": 20 + i % 30,
            "messages": [{"role": "user",
                          "content": f"Tell me a story about {i} foxes. " * (i % 7 + 1)}],
            "temperature": 0.8 if i % 2 else 0, "seed": i}


async def streamed_text(client, i):
    stream = await client.chat.completions.create(stream=True, **fields_of(i))
    text, reason = "", None
    async for chunk in stream:
        text += chunk.choices[0].delta.content or ""
        reason = chunk.choices[0].finish_reason or reason
    return text, reason


def async_client(server):
    return openai.AsyncOpenAI(base_url=server.base + "/v1", api_key=server.key, max_retries=0,
                              timeout=2 * LONG_WAIT * PATIENCE)


def test_parallel_streams_equal_their_single_runs(server):
    with openai.OpenAI(base_url=server.base + "/v1", api_key=server.key, max_retries=0) as client:
        alone = []
        for i in range(STREAMS):
            choice = client.chat.completions.create(**fields_of(i)).choices[0]
            alone.append((choice.message.content, choice.finish_reason))

    async def together():
        async with async_client(server) as client:
            return await asyncio.gather(*(streamed_text(client, i) for i in range(STREAMS)))

    assert asyncio.run(together()) == alone
    assert len(set(alone)) > STREAMS * 0.9
    server.await_idle()


def test_streams_left_in_the_middle_cost_the_others_nothing(server):
    """Every second client breaks off after three pieces; the rest come whole."""
    async def one(client, i):
        if i % 2:
            return await streamed_text(client, i)
        stream = await client.chat.completions.create(
            stream=True, **(fields_of(i) | {"max_completion_tokens": 1500}),
            extra_body={"ignore_eos": True})
        pieces = 0
        async for _ in stream:
            pieces += 1
            if pieces == 3:
                break
        await stream.close()
        return None

    async def together(indices):
        async with async_client(server) as client:
            return await asyncio.gather(*(one(client, i) for i in indices))

    mixed = asyncio.run(together(range(20)))
    server.await_idle()
    assert asyncio.run(together(range(1, 20, 2))) == mixed[1::2]


async def give_up(server):
    """A long call by a client that waits for a moment."""
    async with async_client(server) as client:
        with pytest.raises(openai.APITimeoutError):
            await client.completions.create(model=NAME, prompt="Once", n=ENDLESS["n"],
                                            max_tokens=ENDLESS["max_tokens"],
                                            extra_body={"ignore_eos": True}, timeout=0.3)


def check_that_it_was_cancelled(server):
    server.await_idle()
    assert server.metrics()["generation_tokens_total"] < 8 * 1500, "it ran to the end"


@pytest.mark.skipif(OVER_GATEWAY, reason="functions have no --isa; the test below is theirs")
def test_async_timeout_of_the_client_cancels():
    """The client gives up; the server stops working for it."""
    with demo_server(*SLOW) as server:
        asyncio.run(give_up(server))
        check_that_it_was_cancelled(server)


@pytest.mark.skipif(not OVER_GATEWAY, reason="serve has no function processes")
def test_async_timeout_of_the_client_cancels_a_function():
    """Its process computes nothing until the client has given up."""
    with demo_server() as server:
        server.complete()
        process, = functions_of(server.process.pid)
        os.kill(process, signal.SIGSTOP)
        try:
            asyncio.run(give_up(server))
        finally:
            os.kill(process, signal.SIGCONT)
        check_that_it_was_cancelled(server)
