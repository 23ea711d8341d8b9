"""Replies as models write them."""

from __future__ import annotations

READ = {
    # JSON, as it is asked for and as it comes
    '{"triplets": [["A", "activates", "B"]], "answer": "up"}': "up",
    '```json\n{"triplets": [], "answer": "No change"}\n```': "no_change",
    '{"triplets": [], "answer": "NO_CHANGE"}': "no_change",
    'Here it is: {"triplets": [["A", "inhibits", "B"],], // the last edge\n "answer": "down",}': "down",
    '{"triplets": [], /* none */ "answer": "up"}': "up",
    "{'triplets': [['A', 'inhibits', 'B']], 'answer': 'down'}": "down",
    '{"url": "http://a//b", "answer": "up"}': "up",
    '{"triplets": [], "answer": "up", "answer": "down"}': "conflicting",
    '{"triplets": [], "answer": "up"}\n{"triplets": [], "answer": "down"}': "conflicting",
    '{"triplets": [], "answer": "up"} I repeat: {"triplets": [], "answer": "up"}': "up",
    '{"answer": "up|down|no_change"}': "conflicting",
    '{"answer": null}': "no_answer",
    '{"triplets": [["A", "activates", "B"]], "outcome": "down"}': "down",
    '{"triplets": [["A", "activates", "B"]]}': "no_answer",
    '{"triplets": [["A", "activates", "B"]]}, "answer": "up"}': "invalid",
    # tags
    "<answer>up</answer> on reflection <answer>down</answer>": "conflicting",
    "<answer>up</answer> so <answer>UP</answer>": "up",
    "<answer>NOTHING</answer>": "no_answer",
    # think blocks
    "<think>it goes up. Answer: up": "truncated",
    '<think>{"answer": "up"}': "truncated",
    "<think>Answer: up</think>\nAnswer: down": "down",
    "the server ate the tag. Answer: up</think>\nAnswer: down": "down",
    "<think>Answer: up</think>": "empty",
    # a last line
    "**Answer:** DOWN": "down",
    "Final answer: increased": "up",
    "My final answer is: it goes down.": "down",
    "Answer: up\nWait, there is a repressor.\nAnswer: down": "down",
    "Answer: up, down or no_change": "conflicting",
    "Answer: not upregulated": "no_answer",
    "Answer: not upregulated, but downregulated": "down",
    "Answer: it isn't upregulated": "no_answer",
    "Answer: it isn’t downregulated; it is up-regulated": "up",
    "Answer: neither up nor down": "no_change",
    "Answer: not significantly upregulated or downregulated": "no_change",
    "Answer: **No significant change**": "no_change",
    "Answer: there would not be any change": "no_change",
    "Answer: expression stays the same": "no_change",
    "Answer: No, it is upregulated": "up",
    "Answer: unaffected": "no_change",
    "Answer: the Northern blot says so": "no_answer",
    # genes whose names hold words
    "Answer: NOTCH1 is upregulated": "up",
    "Answer: UPP1 does not change": "no_change",
    "Answer: DOWN and UP: UP is reduced": "down",
    "Answer: NO66 goes up": "up",
    # a word and nothing else
    "up": "up",
    "No change.": "no_change",
    "**down**": "down",
    # none of it
    "The chain of events suggests that it goes up and the reader may think what the reader likes of this": "invalid",
    "A Northern blot shows no band": "invalid",
    "I'm sorry, but I cannot help with that.": "refusal",
    "As an AI language model I do not do biology": "refusal",
    "": "empty",
    " \n ": "empty",
}  # fmt: skip
"""Reply -> the outcome it is read as, or the status of one that has none."""
