"""MkDocs hooks: READMEs become pages of the site without a copy, and references are generated from the code.

Links are written for the repository. A link to a file that is a page is converted to a link to that page; a link to
any other file becomes its path.
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
    paths = (path.relative_to(ROOT) for name in PACKAGES for path in sorted((ROOT / name).rglob("README.md")))
    return {
        f"packages/{'-'.join(path.parts[:-1])}.md": path.as_posix()
        for path in paths
        if path.as_posix() not in INCLUDED.values() and "samples" not in path.parts
    }


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add packages and decision records to the navigation."""
    assert config.nav is not None
    decisions = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("0*.md"))
    listed: dict[str, list[Any]] = {
        "Packages": [{path.removesuffix("/README.md"): page} for page, path in packages().items()],
        "Decision records": [f"decisions/{name}" for name in ("README.md", *decisions)],
    }
    for section in config.nav:
        for title in listed.keys() & (section.keys() if isinstance(section, dict) else ()):
            section[title] = listed[title]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in this folder."""
    for page, path in {**INCLUDED, **packages()}.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text(encoding="utf-8")))
    for page, write in WRITTEN.items():
        files.append(File.generated(config, page, content=write()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Convert links to pages of the site, and indent nested lists for Python-Markdown."""
    uri = page.file.src_uri
    if uri in WRITTEN:
        return markdown
    included = {**INCLUDED, **packages()}
    pages = {path: page for page, path in included.items()} | {"serve_app/SETTINGS.md": "reference/settings.md"}
    folder = posixpath.dirname(included.get(uri, f"docs/{uri}"))

    def converted(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path or ":" in path:
            return match.group()
        full = posixpath.normpath(posixpath.join(folder, path))
        readme = f"{full}/README.md"
        destination = pages.get(full) or pages.get(readme) or full.removeprefix("docs/") * full.startswith("docs/")
        if destination:
            relative = posixpath.relpath(destination, posixpath.dirname(uri) or ".")
            return f"{image}[{text}]({relative}{'#' + anchor if anchor else ''})"
        if not (ROOT / full).exists():
            # --strict fails on a warning
            logger.warning("%s links to %s, which does not exist.", included.get(uri, uri), target)
        return text if full in text or path in text else f"{text} (`{full}`)"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(as_table(part) if at % 2 else LINK.sub(converted, indented(part)) for at, part in enumerate(parts))


def as_table(fence: str) -> str:
    """Return a Mermaid diagram as a table of its arrows: rendering it would load an external script."""
    if not fence.startswith("```mermaid"):
        return fence
    rows = []
    for line in fence.splitlines():
        arrow = re.match(r" +(\S+) +[-|o{}.]+[->|o{}]* +([^\s:]+)(?: *: *\"?([^\"]*)\"?)?$", line)
        if arrow:
            start, end, label = (group or "" for group in arrow.groups())
            rows.append(f"| {start.replace('[*]', 'start')} | {label} | {end.replace('[*]', 'end')} |")
    if not rows:
        logger.warning("Unsupported Mermaid diagram: %s", fence.splitlines()[1])
        return fence
    return "\n".join(["| From | Arrow | To |", "|---|---|---|", *rows])


def indented(markdown: str) -> str:
    """Return the text with content of list items indented by four spaces instead of two or three."""
    return re.sub(r"^( {2,3})(?=[-|`]|\d+\. )", "    ", markdown, flags=re.MULTILINE)


def settings() -> str:
    """Return the page of all settings by group."""
    from serve_app.settings import documented

    parts, group = ["# Settings", "", "Environment variables; lists and objects are written as JSON.", ""], ""
    for setting in documented():
        prefix = setting.variable.rpartition("__")[0] or "General"
        if prefix != group:
            group = prefix
            parts += [f"## {group}", ""]
        default = f" (default `{setting.default}`)" if setting.default else ""
        parts += [f"`{setting.variable}`{default}", f": {setting.description}", ""]
    return "\n".join(parts)


def command_line() -> str:
    """Return the page of all commands, from their help."""
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
    """Return the page of all events, from their schema."""
    from serve_app.webhooks import payload

    schema = payload.schema()
    models = schema["$defs"]
    parts = ["# Events", "", "[Receive events](../events.md) describes delivery and signatures.", ""]
    for name in schema["discriminator"]["mapping"].values():
        model = models[name.rsplit("/", 1)[1]]
        data = model["properties"]["data"]
        parts += [f"## {model['properties']['type']['const']}", "", model.get("description", ""), ""]
        parts += [f"`data`: {shape(data)}", ""]
    for name, model in models.items():
        if "enum" in model:
            parts += [f"## {name}", "", f"One of {', '.join(f'`{value}`' for value in model['enum'])}.", ""]
            continue
        if "type" in model["properties"]:
            continue
        parts += [f"## {name}", "", model.get("description", ""), "", "| Field | Type | Meaning |", "|---|---|---|"]
        parts += [
            f"| `{field}` | {shape(spec)} | {spec.get('description', '')} |"
            for field, spec in model["properties"].items()
        ]
        parts.append("")
    return "\n".join(parts)


def shape(field: dict[str, Any]) -> str:
    """Return the type of a JSON schema field in words."""
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in field:
        return " or ".join(shape(option) for option in field["anyOf"])
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
