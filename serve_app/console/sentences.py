"""Texts of the pages that stand in no template, beside those of `labels`. Names in capitals are for the catalogs."""

NOT_A_KEY = "That is not a valid key: it may be mistyped, revoked or expired."
NOT_FOR_READING = "This key may submit calls, not read them. Sign in with a key of scope read."
LINK_USED = "This link was used before, or it has expired. Ask for another one, or sign in with a key."

NOT_FOUND = ("There is no such page", "It may have been removed, or belong to another team.")
NOT_UNDERSTOOD = ("That cannot be shown", "This address is not valid. Start over.")
UNAVAILABLE = ("This cannot be shown now", "Try again in a moment.")
CRASHED = ("This page failed", "This is an error of the service. The log of the Console has the reason.")
NOT_ALLOWED = ("You may read only", "To correct calls, sign in with a key that has the scope edit, too.")
STALE = (
    "Someone else was faster",
    "This was changed in the meantime; your change was not saved. Look at the call again.",
)
CHANGED = "This turn was changed in the meantime and is shown as it is now. Your change was not saved."
NO_COMMENT = ("Say why", "Go back, and give a reason: an answer is changed with a comment.")
NO_SUCH_ANSWER = ("This cannot be the answer", "Go back: a number takes digits, a date such as 2026-11-24.")
TOO_LONG = "That is too much for one correction. Correct fewer words at once."
NOT_KEPT = "That could not be saved."
REFUSED = ("That cannot be done", "Go back and start over.")

KEY_INCOMPLETE = ("The key needs a name and a scope", "Go back, and say what the key is for and what it may do.")
KEY_OUTLIVES = ("This key cannot be made", "Your own key expires; it cannot create an admin key that lasts longer.")
LAST_ADMIN_KEY = ("This key stays", "It is the last one with the scope admin. Create another one first.")
ADMIN_ONLY = ("This takes an administrator", "Sign in with a key that has the scope admin, too.")
OF_ALL_TEAMS = ("This is of all teams", "Your key is of one team; a key of the workspace changes it.")
FORM_INCOMPLETE = ("That could not be saved", "Go back, and look at the name and the other fields.")
ID_TAKEN = ("This userId is taken", "Go back, and look for the member who has it.")
TEAM_IN_USE = (
    "The team is in use",
    "Revoke its keys, remove its webhooks. A team with calls is removed by an operator: switchboard teams delete.",
)
WEBHOOK_REFUSED = "Events cannot be sent there"
HOST_SILENT = "The host's name cannot be resolved. Try again in a moment."
NO_EVENTS = ("The webhook needs an event", "Go back, and choose what is sent.")
TOO_MANY_WEBHOOKS = ("The limit of webhooks is reached", "Remove one first.")
TOO_MANY_VIEWS = ("There are 50 views already", "Delete one that is no longer needed.")
VIEW_UNNAMED = ("The view needs a name", "Go back, and give it a name of at most 60 characters.")
VIEW_NAME_TAKEN = ("Another view has this name", "Go back, and choose another name.")
VOICE_UNASSIGNED = ("Nobody knows whose voice this is", "An operator assigns it first: switchboard voiceprints assign.")

NO_REVIEWER = (
    "Reviewing takes a key of your own",
    "Sign in with a key that has the scope edit; a link is no reviewer.",
)
REVIEW_INCOMPLETE = ("Something is not answered yet", "Go back, and answer each question of each call.")
REVIEW_STAYS = ("These answers stay as they are", "They are handed in, or the calibration is closed.")

NOT_MEASURED = ("This cannot be measured here", "The Console lacks the package switchboard-calls[evaluation].")
MEASURED_TOO_LONG = ("Measuring took too long", "The command line measures it: switchboard runs compare.")
RUN_REFUSED = "That cannot be done with this run"
SAME_RUN = "A run cannot be compared with itself."
NONE_IN_BOTH = "No call is done in both runs."
NONE_IN_SET = "No call that was done is in this gold set."
FIGURES = (
    "record",
    "{low} to {high}",
    "points",
    "Differs by {by}: too few calls to tell",
    "No difference shown",
    "{name} is better by {by} ({ends})",
    "{name} is worse by {by} ({ends})",
    "The lowest first",
    "The highest first",
)

DAYS = ("Today", "Yesterday", "Tomorrow")
DUE = ("Overdue", "Today", "Tomorrow", "Within a week", "Later", "Without a date")
