"""A small call, and a model's answer to it."""

from pipeline.analysis import AnalysisOptions, analyze, ask, conclude, model_requests
from pipeline.analysis.llm.asking import blocking
from pipeline.domain.insight import ModelAnswers
from tests.llm_server import MODEL
from tests.tuned import tuned

KEY = "sk-very-secret-0123456789"
MINE = ("tone", "contacts", "tasks", "summary")  # the steps that the model has a say in
LINES = (
    ("rep", "Northwind Energy, this is Anna, how can I help you?"),
    ("customer", "Hi, my name is Peter Miller, that is M I L L E R. I was charged twice, that is really annoying."),
    ("rep", "I am very sorry. I will send you the corrected invoice before Saturday."),
    (
        "customer",
        "My email is peter at miller dot example, and my number is two oh two, five five five, oh one four three.",
    ),
    ("rep", "Thank you, I will do that."),
)


def options(endpoint, **given):
    return tuned(AnalysisOptions, **{"engine": "llm", "base_url": endpoint.base_url, "model": MODEL, **given})


def findings_of(material, chosen):
    return {finding.step: finding for finding in analyze(material, chosen)}


def findings_with_cached(material, chosen, cached):
    """Return the findings with cached answers, and the model's new answers."""
    new_answers = {}

    async def keep(key, text):
        new_answers[key] = text

    requests = model_requests(material, chosen, cached)
    unanswered = blocking(lambda: ask(requests, chosen, keep))
    return conclude(material, chosen, ModelAnswers({**cached, **new_answers}, unanswered)), new_answers


def q(turn, text):
    return {"turn": turn, "text": text}


def answer(**given):
    no_contact = dict.fromkeys(("name", "company", "email", "phone", "address"))
    empty = {"tasks": [], "summary": [], "topics": [], "tones": [], "outcome": None}
    return {**empty, **given, "contact": {**no_contact, **given.get("contact", {})}}


def task(turn, quote, title="Send the corrected invoice", due=None, **given):
    stated = {"owner": "rep", "beneficiary": "customer", "kind": "commitment", **given}
    due_quote = {"turn": turn, "text": due} if isinstance(due, str) else due
    return {"title": title, "due": due_quote, "quote": q(turn, quote), **stated}


SEND = "I will send you the corrected invoice before Saturday."
ANSWER = answer(
    tasks=[task(2, SEND, due="before Saturday")],
    contact={
        "name": {"value": "Peter Miller", "quotes": [q(1, "my name is Peter Miller, that is M I L L E R.")]},
        "email": {"value": "peter@miller.example", "quotes": [q(3, "My email is peter at miller dot example,")]},
        "phone": {
            "value": "+1 202-555-0143",
            "quotes": [q(3, "my number is two oh two, five five five, oh one four three.")],
        },
    },
    summary=[
        {"text": "Peter Miller was charged twice.", "quote": q(1, "I was charged twice")},
        {"text": "Anna sends a corrected invoice.", "quote": q(2, "I will send you the corrected invoice")},
    ],
    topics=[{"text": "double charge", "quote": q(1, "charged twice")}],
    tones=[
        {"speaker": "customer", "label": "negative", "quote": q(1, "that is really annoying.")},
        {"speaker": "rep", "label": "positive", "quote": q(4, "Thank you")},
    ],
    outcome={"name": "follow_up", "quote": q(2, SEND)},
)


def without(**replaced):
    return {**ANSWER, **replaced}
