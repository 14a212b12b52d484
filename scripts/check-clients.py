#!/usr/bin/env python3
"""Asks `rustorch-cli serve` by the client libraries that people use: openai, anthropic and ollama of PyPI.

    scripts/check-clients.py PROGRAM

PROGRAM is rustorch-cli, which serves its bundled model on a free port. The openai and anthropic clients validate each
response strictly. It prints a line for each check, and fails if one failed.
"""

import re
import subprocess
import sys

import anthropic
import ollama
import openai

SAY = [{"role": "user", "content": "Say hello to the king."}]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}


def openai_checks(address):
    client = openai.OpenAI(
        base_url=f"http://{address}/v1", api_key="none", max_retries=0, _strict_response_validation=True
    )
    (model,) = [model.id for model in client.models.list()]
    chat = lambda **more: client.chat.completions.create(model=model, messages=SAY, max_tokens=8, **more)

    def models():
        assert client.models.retrieve(model).id == model

    def chats():
        answer = chat(logprobs=True, top_logprobs=3, n=2, seed=7)
        assert len(answer.choices) == 2 and answer.usage.completion_tokens == 16
        assert len(answer.choices[0].logprobs.content) == 8

    def streamed_chats():
        chunks = list(chat(stream=True, temperature=0, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == chat(temperature=0).choices[0].message.content
        assert chunks[-1].usage.completion_tokens == 8

    def tools():
        answer = client.chat.completions.create(
            model=model, messages=SAY, tools=[TOOL], tool_choice="required", max_tokens=200, temperature=0
        )
        (call, *_) = answer.choices[0].message.tool_calls
        assert call.function.name == "weather" and answer.choices[0].finish_reason in ("tool_calls", "length")

    def schemas():
        schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
        schema["additionalProperties"] = False
        answer = client.chat.completions.create(
            model=model, messages=SAY, max_tokens=60,
            response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
        )
        assert re.search(r'"n"\s*:\s*[12]', answer.choices[0].message.content)

    def completions():
        answer = client.completions.create(model=model, prompt="The king", max_tokens=8, logprobs=2)
        assert len(answer.choices[0].logprobs.tokens) == 8

    def responses():
        answer = client.responses.create(model=model, input="Hello", max_output_tokens=8)
        assert answer.output_text and answer.usage.output_tokens == 8

    def streamed_responses():
        events = list(client.responses.create(model=model, input="Hello", max_output_tokens=8, stream=True))
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        last = events[-1]
        assert last.type in ("response.completed", "response.incomplete") and last.response.output_text == text

    def embeddings():
        # The client asks for base64 on its own.
        answer = client.embeddings.create(model=model, input=["a king", "a whale"])
        sizes = [sum(x * x for x in item.embedding) for item in answer.data]
        assert len(sizes) == 2 and all(abs(size - 1) < 1e-3 for size in sizes)

    def errors():
        for error, ask in (
            (openai.NotFoundError, lambda: client.chat.completions.create(model="none", messages=SAY)),
            (openai.BadRequestError, lambda: chat(temperature=-1)),
            (openai.BadRequestError, lambda: client.completions.create(model=model, prompt="king " * 9000)),
        ):
            try:
                ask()
            except error:
                continue
            raise AssertionError(f"no {error.__name__}")

    return [models, chats, streamed_chats, tools, schemas, completions, responses, streamed_responses, embeddings, errors]


def anthropic_checks(address):
    client = anthropic.Anthropic(
        base_url=f"http://{address}", api_key="none", max_retries=0, _strict_response_validation=True
    )
    with_model = {"model": ollama.Client(host=f"http://{address}").list().models[0].model, "messages": SAY}
    tool = {"name": "weather", "input_schema": WEATHER}

    def messages():
        answer = client.messages.create(max_tokens=8, system="Be brief.", **with_model)
        assert answer.stop_reason == "max_tokens" and answer.usage.output_tokens == 8

    def streams():
        with client.messages.stream(max_tokens=8, temperature=0, **with_model) as stream:
            text = "".join(stream.text_stream)
            assert stream.get_final_message().content[0].text == text

    def calls():
        answer = client.messages.create(
            max_tokens=200, tools=[tool], tool_choice={"type": "any"}, temperature=0, **with_model
        )
        assert answer.content[0].type == "tool_use" and answer.content[0].name == "weather"

    def counts():
        assert client.messages.count_tokens(**with_model).input_tokens > 3

    def errors():
        try:
            client.messages.create(model="none", messages=SAY, max_tokens=4)
        except anthropic.NotFoundError:
            return
        raise AssertionError("no NotFoundError")

    return [messages, streams, calls, counts, errors]


def ollama_checks(address):
    client = ollama.Client(host=f"http://{address}")
    model = client.list().models[0].model
    options = {"num_predict": 8, "temperature": 0}

    def lists():
        assert client.show(model).capabilities and client.ps().models[0].model == model

    def chats():
        whole = client.chat(model=model, messages=SAY, options=options)
        parts = client.chat(model=model, messages=SAY, options=options, stream=True)
        assert "".join(part.message.content for part in parts) == whole.message.content

    def texts():
        answer = client.generate(model=model, prompt="The king", options=options)
        assert answer.done and answer.eval_count == 8

    def embeds():
        answer = client.embed(model=model, input=["a king", "a whale"])
        assert len(answer.embeddings) == 2
        assert len(client.embeddings(model=model, prompt="a king").embedding) == len(answer.embeddings[0])

    def errors():
        try:
            client.chat(model="none", messages=SAY)
        except ollama.ResponseError as error:
            assert error.status_code == 404
            return
        raise AssertionError("no ResponseError")

    return [lists, chats, texts, embeds, errors]


def main():
    server = subprocess.Popen([sys.argv[1], "serve", "--port", "0"], stderr=subprocess.PIPE, text=True)
    failed = 0
    try:
        for line in server.stderr:
            if match := re.match(r"listening on http://(\S+)", line):
                break
        else:
            sys.exit("the server ended")
        for checks in (openai_checks, anthropic_checks, ollama_checks):
            for check in checks(match[1]):
                name = f"{checks.__name__.removesuffix('_checks')} {check.__name__.replace('_', ' ')}"
                try:
                    check()
                    print(f"ok      {name}")
                except Exception as error:
                    failed += 1
                    print(f"FAILED  {name}: {type(error).__name__}: {error}")
    finally:
        server.terminate()
        server.wait()
    print(f"{failed} failed")
    sys.exit(failed > 0)


main()
