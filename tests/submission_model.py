"""How submissions merge and how a call's state moves: the model that the SQL function `submit_calls` agrees with."""

from dataclasses import fields, replace

from pipeline.domain.call import Call, CallState, Submission


def merge(call: Call | None, submission: Submission) -> Call:
    """Latest value wins, field by field; a field that the submission does not carry keeps its value."""
    carried = {f.name: getattr(submission, f.name) for f in fields(submission)}
    if call is None:
        return Call(**carried)
    return replace(call, **{name: value for name, value in carried.items() if value is not None})


def next_state(state: CallState | None, submission: Submission, same_recording: bool = False) -> CallState:
    """Return the state after `submission`.

    `same_recording`: the merged record refers to the recording of its latest job, running or done. A submission without
    a recording never returns a call to `received`.
    """
    if submission.recording_url is None:
        return state or CallState.RECEIVED
    if same_recording and state in (CallState.TRANSCRIBING, CallState.COMPLETED):
        return state
    return CallState.TRANSCRIBING
