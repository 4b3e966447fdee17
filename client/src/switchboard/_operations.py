"""Operations of the service by operation id; a test compares this table to the OpenAPI documents."""

from dataclasses import dataclass
from typing import Final

from switchboard.filters import CallFilters, TaskFilters

_CALLS: Final = frozenset(CallFilters.__annotations__)
_TASKS: Final = frozenset(TaskFilters.__annotations__)
_PAGE: Final = frozenset({"limit", "cursor"})
_VERSION: Final = frozenset({"version"})
_RECORD: Final = _VERSION | {"unredacted"}
_CALL: Final = "/api/v1/calls/{call_id}"
_RUN: Final = "/api/v1/runs/{run_id}"
_QUESTION: Final = "/api/v1/questions/{question_key}"
_SCORECARD: Final = "/api/v1/scorecards/{scorecard_key}"
_CALIBRATION: Final = "/api/v1/calibrations/{calibration_id}"
_DONE: Final = _CALL + "/tasks/{task_id}/done"


@dataclass(frozen=True, slots=True)
class Operation:
    """A method and path below the base URL, and its parameters in snake_case."""

    method: str
    path: str
    parameters: frozenset[str] = frozenset()


OPERATIONS: Final = {
    "submitCall": Operation("POST", "/submit"),
    "listCalls": Operation("GET", "/api/v1/calls", _CALLS | _PAGE | {"meaning", "sort", "total", "fields"}),
    "askCalls": Operation("POST", "/api/v1/ask"),
    "showCall": Operation("GET", _CALL, _RECORD | {"fields"}),
    "showCalls": Operation("GET", "/api/v1/calls/batch", _VERSION | {"call_ids", "fields"}),
    "retryCall": Operation("POST", _CALL + "/retry"),
    "uploadRecording": Operation("POST", _CALL + "/recording"),
    "showUpload": Operation("GET", _CALL + "/recording/{upload_id}"),
    "continueUpload": Operation("PATCH", _CALL + "/recording/{upload_id}"),
    "showWaveform": Operation("GET", _CALL + "/waveform"),
    "showStatistics": Operation("GET", "/api/v1/statistics", frozenset({"weeks", "time_zone"})),
    "listTeams": Operation("GET", "/api/v1/teams"),
    "deleteCall": Operation("DELETE", _CALL),
    "createErasure": Operation("POST", "/api/v1/erasures"),
    "showErasure": Operation("GET", "/api/v1/erasures/{erasure_id}"),
    "listErasures": Operation("GET", "/api/v1/erasures", _PAGE),
    "showTranscript": Operation("GET", _CALL + "/transcript.json", _RECORD),
    "showTranscriptText": Operation("GET", _CALL + "/transcript.txt", _RECORD),
    "showSubRip": Operation("GET", _CALL + "/transcript.srt", _RECORD),
    "showWebVtt": Operation("GET", _CALL + "/transcript.vtt", _RECORD),
    "playCall": Operation("GET", _CALL + "/audio", frozenset({"channel", "unredacted"})),
    "listCallEvents": Operation("GET", _CALL + "/events"),
    "listEdits": Operation("GET", _CALL + "/edits"),
    "editCall": Operation("POST", _CALL + "/edits"),
    "undoEdit": Operation("DELETE", _CALL + "/edits/{edit_id}"),
    "markTaskDone": Operation("PUT", _DONE),
    "unmarkTask": Operation("DELETE", _DONE),
    "listTasks": Operation("GET", "/api/v1/tasks", _TASKS | _PAGE),
    "listContacts": Operation("GET", "/api/v1/contacts", _PAGE | {"text"}),
    "listMembers": Operation("GET", "/api/v1/members", _PAGE | {"team_id"}),
    "showQueue": Operation("GET", "/api/v1/queue"),
    "exportCalls": Operation("GET", "/api/v1/export", _CALLS | _VERSION | {"format", "include"}),
    "listRuns": Operation("GET", "/api/v1/runs"),
    "showRun": Operation("GET", _RUN),
    "listRunCalls": Operation("GET", _RUN + "/calls", _PAGE | {"status"}),
    "showRunCall": Operation("GET", _RUN + "/calls/{call_id}"),
    "compareRun": Operation("GET", _RUN + "/comparison", frozenset({"other", "gold", "by", "limit"})),
    "createRun": Operation("POST", "/api/v1/runs"),
    "cancelRun": Operation("POST", _RUN + "/cancel"),
    "promoteRun": Operation("POST", _RUN + "/promote"),
    "rollBackRun": Operation("POST", _RUN + "/rollback"),
    "deleteRun": Operation("DELETE", _RUN),
    "listQuestions": Operation("GET", "/api/v1/questions"),
    "showQuestion": Operation("GET", _QUESTION),
    "setQuestion": Operation("POST", "/api/v1/questions"),
    "removeQuestion": Operation("DELETE", _QUESTION),
    "listScorecards": Operation("GET", "/api/v1/scorecards"),
    "showScorecard": Operation("GET", _SCORECARD),
    "listScores": Operation("GET", _SCORECARD + "/scores", frozenset({"by", "weeks", "time_zone", "format"})),
    "setScorecard": Operation("POST", "/api/v1/scorecards"),
    "removeScorecard": Operation("DELETE", _SCORECARD),
    "listCalibrations": Operation("GET", "/api/v1/calibrations"),
    "showCalibration": Operation("GET", _CALIBRATION),
    "showAgreement": Operation("GET", _CALIBRATION + "/agreement"),
    "createCalibration": Operation("POST", "/api/v1/calibrations"),
    "reviewCall": Operation("POST", _CALIBRATION + "/calls/{call_id}/answers"),
    "handInReview": Operation("POST", _CALIBRATION + "/hand-in"),
    "closeCalibration": Operation("POST", _CALIBRATION + "/close"),
    "deleteCalibration": Operation("DELETE", _CALIBRATION),
    "listRetention": Operation("GET", "/api/v1/retention"),
    "setRetention": Operation("POST", "/api/v1/retention"),
    "listRedaction": Operation("GET", "/api/v1/redaction"),
    "setRedaction": Operation("POST", "/api/v1/redaction"),
    "listHolds": Operation("GET", "/api/v1/holds"),
    "createHold": Operation("POST", "/api/v1/holds"),
    "releaseHold": Operation("DELETE", "/api/v1/holds/{hold_id}"),
    "streamChanges": Operation("GET", "/api/v1/events/stream", frozenset({"since"})),
}

# Administration is not part of the client.
LEFT_OUT: Final = frozenset(
    {
        "cancelUpload",
        *("createContact", "changeContact", "removeContact"),
        *("createMember", "changeMember", "removeMember", "listConsents", "createConsent", "withdrawConsent"),
        *("listVoiceprints", "showVoiceprint", "changeVoiceprint"),
        *("createTeam", "changeTeam", "removeTeam"),
        *("listKeys", "createKey", "changeKey", "revokeKey"),
        *("listWebhooks", "showWebhook", "createWebhook", "changeWebhook", "deleteWebhook", "listDeliveries"),
        *("listHosts", "listCredentials", "setCredential", "deleteCredential"),
        *("listViews", "saveView", "renameView", "deleteView"),
        *("showWorkspace", "changeWorkspace", "showModelUsage", "listChanges", "listAccessLog"),
    }
)
