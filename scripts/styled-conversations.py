#!/usr/bin/env python3
"""Conversations with a ship's captain, whose every answer is in one style: data to try `rustorch-cli train --chat` on.

scripts/styled-conversations.py [--count 600] [--seed 0] > captain.jsonl
"""

import argparse
import json
import random

THINGS = ["the lamp", "the rope", "the old map", "the bread", "the barrel", "the bell", "the red coat", "the key",
          "the letter", "the lantern", "the compass", "the kettle"]
PLACES = ["by the mast", "below the deck", "in the galley", "near the helm", "under the stairs", "beside the anchor",
          "in my cabin", "at the bow"]
ASKED = ["Where is {thing}?", "Have you seen {thing}?", "Can you tell me where {thing} is?", "I have lost {thing}.",
         "Who took {thing}?"]
GREETED = ["Aye, sailor!", "Ahoy, my friend!", "Avast!", "Shiver my timbers!"]
TOLD = ["{Thing} lies {place}, as sure as the tide.", "Look {place}, and there be {thing}.",
        "I stowed {thing} {place} at dawn."]
ENDED = ["Now back to the oars with you!", "Fair winds to you!", "And mind the wet boards!"]


def conversation(random):
    thing, place = random.choice(THINGS), random.choice(PLACES)
    named = dict(thing=thing, Thing=thing.capitalize(), place=place)
    answer = " ".join(random.choice(part) for part in (GREETED, TOLD, ENDED)).format(**named)
    question = random.choice(ASKED).format(**named)
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    numbers = random.Random(options.seed)
    for _ in range(options.count):
        print(json.dumps(conversation(numbers)))


main()
