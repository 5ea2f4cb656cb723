"""What `ci` found, as JUnit's XML: a suite a target, a test case a check.

Source: junit-10.xsd of Jenkins' xUnit plugin. A check with findings has one failure that lists them
all, as most readers show only the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from sdyscope.ci.document import Ci, CiCheck, CiError, CiFinding, CiTarget
from sdyscope.ci.forms.renderer import Reader
from sdyscope.syntax.strings import xml_text
from sdyscope.words.partitioners import partitioner_name


def render(document: Ci, reader: Reader) -> bytes:
    """The document, in UTF-8."""
    suites = ElementTree.Element("testsuites", name="sdyscope ci", time=f"{document.seconds:.3f}")
    elements = [_suite(target) for target in document.targets]
    if document.findings:
        suite = ElementTree.Element(
            "testsuite", name="configuration", file=xml_text(document.config)
        )
        case = ElementTree.SubElement(suite, "testcase", classname="sdyscope", name="configuration")
        _findings(case, document.findings)
        elements.append(suite)
    for suite in elements:
        _count(suite)
        suites.append(suite)
    for key in ("tests", "failures", "errors"):
        suites.set(key, str(sum(int(suite.get(key, "0")) for suite in elements)))
    ElementTree.indent(suites)
    text: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _suite(target: CiTarget) -> ElementTree.Element:
    suite = ElementTree.Element(
        "testsuite",
        name=xml_text(target.name),
        time=f"{target.seconds:.3f}",
        file=xml_text(target.file),
    )
    properties = {
        "target": target.target,
        "mesh": target.mesh,
        "partitioners": ", ".join(map(partitioner_name, target.partitioners)),
        "hardware": target.hardware,
    }
    listed = ElementTree.SubElement(suite, "properties")
    for name, value in properties.items():
        if value:
            ElementTree.SubElement(listed, "property", name=name, value=xml_text(value))
    for check in target.checks:
        _case(suite, target, check)
    if target.skipped or target.error is not None:
        case = ElementTree.SubElement(
            suite, "testcase", classname=xml_text(f"sdyscope.{target.name}"), name="target"
        )
        if target.error is not None:
            _error(case, target.error)
        else:
            ElementTree.SubElement(case, "skipped", message=xml_text(target.skipped))
    return suite


def _case(suite: ElementTree.Element, target: CiTarget, check: CiCheck) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=xml_text(f"sdyscope.{target.name}"),
        name=check.check,
        time=f"{check.seconds:.3f}",
    )
    if check.error is not None:
        _error(case, check.error)
    _findings(case, [finding for finding in target.findings if finding.check == check.check])


def _error(case: ElementTree.Element, error: CiError) -> None:
    first, _, _ = error.text.partition("\n")
    sub_element = ElementTree.SubElement(case, "error", type="error", message=xml_text(first))
    sub_element.text = xml_text(error.text)


def _findings(case: ElementTree.Element, findings: Sequence[CiFinding]) -> None:
    fails = [finding for finding in findings if finding.fails]
    if fails:
        first = fails[0].finding
        more = f" (and {len(fails) - 1:,} more)" if len(fails) > 1 else ""
        failure = ElementTree.SubElement(
            case, "failure", type=first.rule, message=xml_text(first.message + more)
        )
        failure.text = xml_text("\n\n".join(map(_lines, fails)))
    others = [finding for finding in findings if not finding.fails]
    if others:
        sub_element = ElementTree.SubElement(case, "system-out")
        sub_element.text = xml_text("\n\n".join(map(_lines, others)))


def _lines(finding: CiFinding) -> str:
    place = ":".join(str(part) for part in (finding.file, finding.line, finding.column) if part)
    name = finding.subject or "the module"
    head = f"{place}: {finding.finding.severity}: {name} [{finding.finding.rule}]"
    ignored = f"\nIgnored: {finding.ignored}" if finding.ignored else ""
    return f"{head}\n{finding.text}{ignored}"


def _count(suite: ElementTree.Element) -> None:
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for key, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(sum(case.find(kind) is not None for case in cases)))
