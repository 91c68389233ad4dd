"""Objects through the instructor package, in the modes that people use: a forced tool
and a JSON schema."""

import instructor
import openai
import pytest
from pydantic import BaseModel, Field

from serving import NAME


class Animal(BaseModel):
    """An animal of the story."""

    wild: bool
    legs: int = Field(ge=0, le=8)


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
def test_the_answer_is_the_object(server, mode):
    with openai.OpenAI(base_url=server.base + "/v1", api_key=server.key, max_retries=0) as raw:
        client = instructor.from_openai(raw, mode=mode)
        animal, answer = client.chat.completions.create_with_completion(
            model=NAME, response_model=Animal, max_retries=1, max_tokens=200,
            messages=[{"role": "user", "content": "Tell me about a fox."}])
    assert isinstance(animal, Animal) and 0 <= animal.legs <= 8
    assert bool(answer.choices[0].message.tool_calls) == (mode != instructor.Mode.JSON_SCHEMA)
