"""Messages that are in no template. Tests check that catalogs translate all constants."""

NOT_A_KEY = "Invalid API key. It may be mistyped, revoked or expired."
NOT_FOR_READING = "This API key has no read access. Use a key with the scope read."
LINK_USED = "This link has expired or was already used. Request a new one, or sign in with an API key."

NOT_FOUND = ("Page not found", "It may have been deleted, or belong to another team.")
NOT_UNDERSTOOD = ("Invalid request", "Check the address or the form, then try again.")
UNAVAILABLE = ("Temporarily unavailable", "Try again in a moment.")
CRASHED = ("Something went wrong", "An internal error occurred. Details are in the log of the Console.")
NOT_ALLOWED = ("Read-only access", "To make changes, sign in with a key that has the scope edit.")
STALE = (
    "The call has changed in the meantime",
    "Your change was not saved. Reload the call, then try again.",
)
CHANGED = "This turn has changed in the meantime. Your change was not saved; the current text is shown."
NO_COMMENT = ("Reason required", "Go back and enter a reason for the new answer.")
EMPTY_COMMENT = ("Comment required", "Go back and enter a comment.")
NO_SUCH_ANSWER = ("Invalid answer", "Go back and enter a number in digits, or a date such as 2026-11-24.")
TOO_LONG = "The correction is too long. Correct fewer words at a time."
NOT_KEPT = "The correction could not be saved."
REFUSED = ("Request not possible", "Go back and try again.")

KEY_INCOMPLETE = ("Name and scope required", "Go back, enter a name and select at least one scope.")
LAST_ADMIN_KEY = (
    "Last admin key cannot be revoked",
    "Create another admin key first, or keep the keys that it created.",
)
ADMIN_ONLY = ("Admins only", "Sign in with a key that has the scope admin.")
OF_ALL_TEAMS = ("Workspace-wide", "Your key is limited to one team. Sign in with a key for the whole workspace.")
FORM_INCOMPLETE = ("Could not be saved", "Go back and check the name and the other fields.")
ID_TAKEN = ("userId already in use", "Another member has this userId. Go back and enter a different one.")
TEAM_IN_USE = (
    "Team in use",
    "Revoke its keys and delete its webhooks first. To delete a team that has calls, run: switchboard teams delete.",
)
WEBHOOK_REFUSED = "Invalid webhook URL"
HOST_SILENT = "The host name cannot be resolved. Try again in a moment."
NO_EVENTS = ("No events selected", "Go back and select at least one event.")
TOO_MANY_WEBHOOKS = ("Webhook limit reached", "Delete a webhook first.")
TOO_MANY_VIEWS = ("Maximum of 50 views reached", "Delete a view that you no longer need.")
VIEW_UNNAMED = ("Name required", "Go back and enter a name with max. 60 characters.")
VIEW_NAME_TAKEN = ("Name already in use", "Go back and enter a different name.")
VOICE_WITHOUT_CONSENT = ("No consent", "Record the member's consent to voiceprints first.")
VOICE_UNASSIGNED = ("Voice not assigned", "Assign it to a member first: switchboard voiceprints assign.")

CALL_ON_HOLD = ("On legal hold", "To delete the call, release the hold first: switchboard holds release.")
NO_REVIEWER = (
    "Personal key required",
    "To review calls, sign in with a key that has the scope edit, not with a link.",
)
REVIEW_INCOMPLETE = ("Answers missing", "Go back and answer every question for every call.")
REVIEW_STAYS = ("Answers can no longer be changed", "They were submitted, or the calibration is closed.")

SEALED = ("Call cannot be read", "It is sealed, and its key was deleted or the service's keys do not open it.")
NOT_MEASURED = ("Comparison not available", "Install the package switchboard-calls[evaluation] where the Console runs.")
MEASURED_TOO_LONG = ("Comparison timed out", "Run it on the command line: switchboard runs compare.")
RUN_REFUSED = "Not possible for this run"
SAME_RUN = "A run cannot be compared with itself."
NONE_IN_BOTH = "No completed calls in common."
NONE_IN_SET = "None of the completed calls is in this gold set."
FIGURES = (
    "Live",
    "{low} – {high}",
    "points",
    "Difference {by} (too few calls to tell)",
    "No significant difference",
    "{name} is better by {by} ({ends})",
    "{name} is worse by {by} ({ends})",
    "Lowest first",
    "Highest first",
)

DAYS = ("Today", "Yesterday", "Tomorrow")
DUE = ("Overdue", "Today", "Tomorrow", "Next 7 days", "Later", "No due date")
