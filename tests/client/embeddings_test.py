"""Vectors of texts through the clients that people use."""

import math

import openai
import pytest

from serving import NAME

TEXTS = ["a boat on the sea", "the boat and the sea", "a cake with sugar"]


@pytest.fixture(name="client", scope="module")
def fixture_client(server):
    with openai.OpenAI(base_url=server.base + "/v1", api_key=server.key) as client:
        yield client


def vectors(client, texts, **fields):
    return [item.embedding for item in
            client.embeddings.create(model=NAME, input=texts, **fields).data]


def cosine(a, b):
    return math.fsum(x * y for x, y in zip(a, b)) / math.hypot(*a) / math.hypot(*b)


def test_the_openai_client_gets_the_same_in_both_encodings(client):
    # Without encoding_format the client asks for base64 and decodes it.
    packed = vectors(client, TEXTS)
    plain = vectors(client, TEXTS, encoding_format="float")
    assert len(packed) == 3 and len(packed[0]) == 192
    assert packed == [pytest.approx(vector) for vector in plain]
    assert all(math.hypot(*vector) == pytest.approx(1) for vector in packed)
    answer = client.embeddings.create(model=NAME, input=TEXTS)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0


def test_each_text_has_its_own_vector_wherever_it_stands(client):
    together = vectors(client, TEXTS, encoding_format="float")
    assert [vectors(client, text, encoding_format="float")[0] for text in TEXTS] == together


def test_dimensions_are_the_first_ones_at_length_1(client):
    whole, = vectors(client, TEXTS[0], encoding_format="float")
    short, = vectors(client, TEXTS[0], encoding_format="float", dimensions=10)
    length = math.hypot(*whole[:10])
    assert short == pytest.approx([value / length for value in whole[:10]])
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        vectors(client, TEXTS[0], dimensions=10_000)


def test_token_ids_are_texts_too(client, server):
    ids = server.post("/tokenize", {"model": NAME, "prompt": TEXTS[0]}).json()["tokens"]
    assert vectors(client, [ids], encoding_format="float") == vectors(
        client, TEXTS[0], encoding_format="float")


def test_scores_and_ranks_follow_the_vectors(client, server):
    query, *documents = vectors(client, TEXTS, encoding_format="float")
    wanted = [cosine(query, document) for document in documents]
    scored = server.post("/v1/score", {"model": NAME, "text_1": TEXTS[0], "text_2": TEXTS[1:]})
    assert [item["score"] for item in scored.json()["data"]] == pytest.approx(wanted, abs=1e-5)
    ranked = server.post("/v1/rerank", {"model": NAME, "query": TEXTS[0], "documents": TEXTS[1:]})
    results = ranked.json()["results"]
    assert [item["relevance_score"] for item in results] == pytest.approx(
        sorted(wanted, reverse=True), abs=1e-5)
    assert results[0]["document"]["text"] == TEXTS[1 + results[0]["index"]]


def test_a_prompt_that_is_too_long_can_be_cut(client):
    text = "the sea " * 5000
    with pytest.raises(openai.BadRequestError, match="context length") as refused:
        vectors(client, ["short", text])
    assert refused.value.param == "input[1]"
    assert vectors(client, text, extra_body={"truncate_prompt_tokens": 16})


def test_many_texts_and_an_answer_that_is_too_long(client, server):
    assert len(vectors(client, ["sea"] * 300)) == 300
    refused = server.post("/v1/embeddings", {"model": NAME, "input": ["a"] * 2049})
    assert refused.status == 400 and "2048" in refused.error()["message"]
