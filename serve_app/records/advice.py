AGAIN = "`switchboard jobs retry ID` retries it."
SENDER = (
    "The sender has to publish the recording; then the same submission, or `switchboard jobs retry ID`, starts over."
)

ADVICE = {
    "recording_not_ready": "It was never published, or its signed URL expired. " + SENDER,
    "recording_unreachable": "The sender's server did not answer for hours: is it reachable from here? " + AGAIN,
    "recording_truncated": "The recording was incomplete each time: fix the sender's server. " + AGAIN,
    "recording_too_slow": "It arrived too slowly. Check the sender's connection; then: " + AGAIN,
    "recording_encoded": "The sender's server uses a compression that was not requested; fix that; then: " + AGAIN,
    "credentials_refused": "The workspace's credentials for this host are wrong or expired. Replace them; then retry.",
    "redirect_insecure": "The sender's server redirects from https to http, which is not followed. Fix it there.",
    "recording_gone": "It is gone from where it was. Only the sender can submit it again, under another URL.",
    "recording_error": "The sender's server refused; the message has its answer. " + SENDER,
    "secret_sealed": "Set SWITCHBOARD_SECRETS_KEYS as the message says, on every node; then: " + AGAIN,
    "too_many_redirects": "Open the URL yourself, and have the sender give the address that it leads to.",
    "address_forbidden": "Allow a host of your own network with `switchboard workspaces hosts HOST`; then retry.",
    "recording_too_large": "SWITCHBOARD_FETCH__MAX_BYTES raises the limit of bytes, SWITCHBOARD_DECODE__MAX_SECONDS "
    "those of samples and decoded sound; then retry.",
    "recording_too_long": "SWITCHBOARD_DECODE__MAX_SECONDS raises the limit; then retry.",
    "recording_empty": "The file has no bytes, or a header without samples. " + SENDER,
    "not_audio": "Open the URL yourself: the message says what came instead of audio. " + SENDER,
    "decoder_failed": "Keep the file and report it: no recording should crash the decoder. No other call was affected. "
    + SENDER,
    "storage_error": "Check the folder or bucket of SWITCHBOARD_STORAGE (space, permissions); then retry.",
    "engine_error": "See the log of the engine's replica. " + AGAIN,
    "engine_lost": "The node that ran it was lost. " + AGAIN,
    "could_not_redact": "The message says why. Fix it, or set --show-unchecked for the policy; then: " + AGAIN,
    "timed_out": "Is the machine overloaded, or an engine stuck? See its log. " + AGAIN,
    "not_fetched": "The stored recording was gone when it was needed. " + AGAIN,
    "internal_error": "The Conductor's log has the traceback: please report it. " + AGAIN,
    "worker_lost": "This recording crashes its worker process. Is memory short? If not, keep the file and report it.",
    "engine_unavailable": "`switchboard doctor` says which model is missing. When it is there: " + AGAIN,
    "checkpoint_missing": "`switchboard doctor` says which model is missing; retry when it is there.",
    "device_unavailable": "`switchboard doctor --node`, on that machine, says why; retry when it computes on the GPU.",
    "run_not_reproducible": "Create a new run: `switchboard runs create`.",
    "checkpoint_damaged": "Remove the model's folder and let it be downloaded again; then retry.",
}


WAITS = (
    "`switchboard jobs retry ID` tries it now. If the address is wrong, submit the call again under the same callId "
    "with the right recordingUrl."
)


def advice(code: str, id_: object = "ID") -> str:
    """Return one or two sentences for the person who has to fix it; `id_`: of the job or call."""
    return _with_id(ADVICE.get(code, "The message says what happened. " + AGAIN), id_)


def waiting_advice(id_: object) -> str:
    """Return what can be done about a job, or its call, that waits for its next try."""
    return _with_id(WAITS, id_)


def _with_id(sentence: str, id_: object) -> str:
    return sentence.replace("retry ID`", f"retry {id_}`")
