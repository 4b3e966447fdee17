"""MkDocs hooks: pages that live beside the code, and references written from it at build time.

The README, the package READMEs and SETTINGS.md are pages of the site without a copy in this folder. Links are written
for the repository; here a link to a file that is a page leads to that page, and any other file is named.
"""

import logging
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

logger = logging.getLogger("mkdocs.hooks")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mkdocs.config.defaults import MkDocsConfig  # noqa: E402
from mkdocs.structure.files import File, Files  # noqa: E402
from mkdocs.structure.pages import Page  # noqa: E402

INCLUDED = {  # page of the site: file of the repository
    "index.md": "README.md",
    "security.md": "SECURITY.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "events.md": "serve_app/webhooks/README.md",
    "measurements.md": "bench/README.md",
}
PACKAGES = ("serve_app", "db", "pipeline")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def packages() -> dict[str, str]:
    """Return the page of each package README: of `pipeline/asr/README.md` it is `packages/pipeline-asr.md`."""
    found = (path.relative_to(ROOT) for name in PACKAGES for path in sorted((ROOT / name).rglob("README.md")))
    return {
        f"packages/{'-'.join(path.parts[:-1])}.md": path.as_posix()
        for path in found
        if path.as_posix() not in INCLUDED.values() and "samples" not in path.parts
    }


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List packages and decision records in the navigation, whatever there is."""
    assert config.nav is not None
    decisions = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("*.md"))
    listed: dict[str, list[Any]] = {
        "Packages": [{path.removesuffix("/README.md"): page} for page, path in packages().items()],
        "Decision records": [f"decisions/{name}" for name in decisions],
    }
    for section in config.nav:
        for title in listed.keys() & (section.keys() if isinstance(section, dict) else ()):
            section[title] = listed[title]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is not in this folder."""
    for page, path in {**INCLUDED, **packages()}.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text(encoding="utf-8")))
    for page, write in WRITTEN.items():
        files.append(File.generated(config, page, content=write()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to pages of the site, and indent lists as Markdown's Python implementation wants them."""
    uri = page.file.src_uri
    if uri in WRITTEN:
        return markdown
    own = {**INCLUDED, **packages()}
    pages = {path: one for one, path in own.items()} | {"serve_app/SETTINGS.md": "reference/settings.md"}
    folder = posixpath.dirname(own.get(uri, f"docs/{uri}"))

    def led(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        path, _, anchor = target.partition("#")
        if (
            not path
            or ":" in path
            or (
                uri.startswith("reference/")
                and uri not in own
                and uri not in ("reference/errors.md", "reference/metrics.md")
            )
        ):
            return match.group()
        full = posixpath.normpath(posixpath.join(folder, path))
        readme = f"{full}/README.md"
        found = pages.get(full) or pages.get(readme) or full.removeprefix("docs/") * full.startswith("docs/")
        if found:
            leads = posixpath.relpath(found, posixpath.dirname(uri) or ".")
            return f"{image}[{text}]({leads}{'#' + anchor if anchor else ''})"
        if not (ROOT / full).exists():
            logger.warning("%s links to %s, which is not there.", own.get(uri, uri), target)  # --strict fails on it
        return text if full in text or path in text else f"{text} (`{full}`)"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(drawn(part) if at % 2 else LINK.sub(led, indented(part)) for at, part in enumerate(parts))


def drawn(fence: str) -> str:
    """Return a Mermaid diagram as a table of its arrows: drawing it would load a script from elsewhere."""
    if not fence.startswith("```mermaid"):
        return fence
    rows = []
    for line in fence.splitlines():
        arrow = re.match(r" +(\S+) +[-|o{}.]+[->|o{}]* +([^\s:]+)(?: *: *\"?([^\"]*)\"?)?$", line)
        if arrow:
            start, end, told = (group or "" for group in arrow.groups())
            rows.append(f"| {start.replace('[*]', 'start')} | {told} | {end.replace('[*]', 'end')} |")
    if not rows:
        logger.warning("A Mermaid diagram that is not understood: %s", fence.splitlines()[1])
        return fence
    return "\n".join(["| From | Arrow | To |", "|---|---|---|", *rows])


def indented(markdown: str) -> str:
    """Return the text with what is nested in a list item by two or three spaces nested by four."""
    return re.sub(r"^( {2,3})(?=[-|`]|\d+\. )", "    ", markdown, flags=re.MULTILINE)


def settings() -> str:
    """Return the page of every setting by group, from the fields of the settings."""
    from serve_app.settings import documented

    parts, group = ["# Settings", "", "Environment variables; lists and objects are written as JSON.", ""], ""
    for one in documented():
        named = one.variable.rpartition("__")[0] or "General"
        if named != group:
            group = named
            parts += [f"## {group}", ""]
        default = f" (default `{one.default}`)" if one.default else ""
        parts += [f"`{one.variable}`{default}", f": {one.description}", ""]
    return "\n".join(parts)


def command_line() -> str:
    """Return the page of every command and its options, from their help."""
    import typer
    from typer.cli import get_docs_for_click

    from serve_app.cli import COMMANDS
    from serve_app.cli.ui.lazy import EPILOG

    parts = ["# Command line", "", "`switchboard COMMAND --help` prints the same.", "", EPILOG, ""]
    for entry in COMMANDS:
        context = typer.Context(entry.load(), info_name=entry.name, parent=None)
        parts.append(get_docs_for_click(obj=context.command, ctx=context, indent=1, call_prefix="switchboard"))
    return re.sub(r"^  (?=\S)", "    ", "\n".join(parts), flags=re.MULTILINE)  # examples in help are code


def events() -> str:
    """Return the page of every event and its fields, from the schema."""
    from serve_app.webhooks import payload

    schema = payload.schema()
    models = schema["$defs"]
    parts = ["# Events", "", "What a receiver can rely on: [receiving events](../events.md).", ""]
    for name in schema["discriminator"]["mapping"].values():
        model = models[name.rsplit("/", 1)[1]]
        data = model["properties"]["data"]
        parts += [f"## {model['properties']['type']['const']}", "", model.get("description", ""), ""]
        parts += [f"`data`: {shape(data)}", ""]
    for name, model in models.items():
        if "type" in model["properties"]:
            continue
        parts += [f"## {name}", "", model.get("description", ""), "", "| Field | Type | Meaning |", "|---|---|---|"]
        parts += [
            f"| `{field}` | {shape(one)} | {one.get('description', '')} |" for field, one in model["properties"].items()
        ]
        parts.append("")
    return "\n".join(parts)


def shape(field: dict[str, Any]) -> str:
    """Return the type of a field of a JSON schema, in words."""
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in field:
        return " or ".join(shape(one) for one in field["anyOf"])
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if field.get("type") == "array":
        return f"list of {shape(field['items'])}"
    return " ".join(str(field[key]) for key in ("type", "format") if key in field)


WRITTEN = {
    "reference/settings.md": settings,
    "reference/cli.md": command_line,
    "reference/events.md": events,
}
