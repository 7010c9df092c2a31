"""Secrets: resolved before a handler is called, and in nothing that the host sends or logs."""

import asyncio
import contextlib
import io
import json
import logging
import os
import tempfile
import unittest
from unittest import mock

from perdure import Agent, Failed, Rejected
from perdure.host import Host
from perdure.secret import MAX_BYTES, Missing, Secrets, fill, redactor

from .test_host import Exchange, a_run

CANARY = 'canary-7f3a91 "ü\\'
FORMS = ("canary", "7f3a91", "Y2FuYXJ5")


def with_secret(**more):
    return {**a_run(), "input": {"token": "Bearer ${secret.TOKEN}", "data": "${secret.TOKEN}"}, "secrets": ["/token"], **more}


def played(handler, run, **host):
    """The reports of a run, and everything that was logged meanwhile."""
    agent, exchange, text = Agent("a"), Exchange([run]), io.StringIO()
    agent.do("x")(handler)
    handler_of_log = logging.StreamHandler(text)
    log = logging.getLogger("perdure")
    log.addHandler(handler_of_log)
    level = log.level
    log.setLevel(logging.DEBUG)
    try:
        with Host(lambda: exchange, [agent], holder="h", **host):
            assert exchange.reported.wait(10)
    finally:
        log.removeHandler(handler_of_log)
        log.setLevel(level)
    return exchange.reports, text.getvalue()


class SecretsReachTheHandlerAndNothingElse(unittest.TestCase):
    def check(self, handler, **host):
        seen = []

        def noted(input, run):
            seen.append(input)
            return handler(input, run)

        async def noted_async(input, run):
            seen.append(input)
            await asyncio.sleep(0)
            return handler(input, run)

        for each in (noted, noted_async):
            with mock.patch.dict(os.environ, {"PERDURE_SECRET_TOKEN": CANARY}):
                reports, log = played(each, with_secret(), **host)
            self.assertEqual(seen[-1], {"token": f"Bearer {CANARY}", "data": "${secret.TOKEN}"})
            for part in FORMS:
                self.assertNotIn(part, json.dumps(reports, ensure_ascii=False))
                self.assertNotIn(part, log)
        return reports[0]

    def test_returned(self):
        report = self.check(lambda input, run: {**input, CANARY: [CANARY]})
        self.assertEqual(report["output"], {"token": "Bearer [secret TOKEN]", "data": "${secret.TOKEN}", "[secret TOKEN]": ["[secret TOKEN]"]})

    def test_raised(self):
        def fail(input, run):
            raise RuntimeError(f"refused: {input!r}")
        self.assertEqual(self.check(fail)["outcome"], "failed")

    def test_rejected_with_a_code(self):
        def reject(input, run):
            raise Rejected("x" * 4090 + CANARY, code=CANARY)
        self.assertEqual(self.check(reject)["outcome"], "rejected")

    def test_failed(self):
        def fail(input, run):
            raise Failed(json.dumps(input))
        self.assertEqual(self.check(fail)["outcome"], "failed")

    def test_output_that_is_not_json(self):
        self.assertEqual(self.check(lambda input, run: {CANARY: {1}})["error"]["code"], "outputInvalid")

    def test_logged(self):
        def work(input, run):
            logging.getLogger("perdure").warning("working on %r", run)
        self.check(work)

    def test_progress(self):
        sent = []

        def work(input, run):
            run._send = sent.append
            run.progress(input)
        self.check(work)
        self.assertEqual(json.loads(sent[0])["token"], "Bearer [secret TOKEN]")


class MissingSecrets(unittest.TestCase):
    def test_rejected_without_effect(self):
        run = with_secret(input={"token": "${secret.A}${secret.B}", "data": 1})
        reports, _ = played(lambda input, run: self.fail("called"), run)
        self.assertEqual((reports[0]["outcome"], reports[0]["effect"], reports[0]["error"]["code"]), ("rejected", "none", "secretMissing"))
        self.assertEqual(reports[0]["error"]["message"], "secret A: where the agent runs, the environment variable PERDURE_SECRET_A is not set; "
                         "secret B: where the agent runs, the environment variable PERDURE_SECRET_B is not set")

    def test_no_such_directory(self):
        with self.assertRaisesRegex(ValueError, "secrets_dir: there is no directory"):
            Secrets("/nowhere")


class Files(unittest.TestCase):
    def test_files_and_variables(self):
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory())

            def write(name, data):
                with open(os.path.join(directory, name), "wb") as file:
                    file.write(data)

            write("FILE", b"of a file\n")
            write("TWO", b"a\n\n")
            write("WINDOWS", b"line\r\n")
            write("BOTH", b"of the file")
            write("EMPTY", b"\n")
            write("BINARY", b"a\xff")
            write("LARGEST", b"x" * MAX_BYTES + b"\r\n")
            write("LARGE", b"x" * (MAX_BYTES + 1))
            os.mkdir(os.path.join(directory, "DIRECTORY"))
            os.mkdir(os.path.join(directory, "..2026"))
            write("..2026/MOUNTED", b"mounted")
            os.symlink("..2026", os.path.join(directory, "..data"))
            os.symlink("..data/MOUNTED", os.path.join(directory, "MOUNTED"))
            secrets = Secrets(directory, {"PERDURE_SECRET_BOTH": "of the variable", "PERDURE_SECRET_VARIABLE": "v\n", "PERDURE_SECRET_NOTHING": ""})
            for name, want in {"FILE": "of a file", "TWO": "a\n", "WINDOWS": "line", "BOTH": "of the file", "VARIABLE": "v\n",
                               "MOUNTED": "mounted", "LARGEST": "x" * MAX_BYTES}.items():
                self.assertEqual(secrets.get(name), want)
            for name, want in {"EMPTY": "is empty", "BINARY": "not UTF-8", "LARGE": "more than 65536 bytes", "DIRECTORY": "not a regular file",
                               "MISSING": "no file MISSING", "NOTHING": "is empty"}.items():
                with self.assertRaisesRegex(Missing, want) as raised:
                    secrets.get(name)
                self.assertNotIn(directory, str(raised.exception))
            for name in ("L2", "L3", "L4", "L5"):
                write(name, name.encode() * (MAX_BYTES // 2))
            five = "${secret.LARGEST}${secret.L2}${secret.L3}${secret.L4}${secret.L5}"
            with self.assertRaisesRegex(Rejected, "secret L5: the secrets of this input have more than 262144 bytes together"):
                secrets.resolve(five, [""])
            self.assertEqual(len(secrets.resolve(five.replace("L5", "L4"), [""])[0]), 5 * MAX_BYTES)
            write("FILE", b"rotated")
            self.assertEqual(secrets.get("FILE"), "rotated")


class Filling(unittest.TestCase):
    def test_only_the_strings_at_pointers(self):
        known = {"A": "alpha", "REF": "${secret.A}"}
        for value, pointers, want in (
            ({"h": "Bearer ${secret.A}", "data": "${secret.A}"}, ["/h"], {"h": "Bearer alpha", "data": "${secret.A}"}),
            ({"l": [1, "${secret.A}", "${secret.A}"]}, ["/l/1"], {"l": [1, "alpha", "${secret.A}"]}),
            ("${secret.A}", [""], "alpha"),
            ({"a": "${secret.REF}"}, ["/a"], {"a": "${secret.A}"}),
            ({"a": "$${secret.A} ${secret.a} ${secret.A"}, ["/a"], {"a": "$alpha ${secret.a} ${secret.A"}),
            ({"x/y": {"~": "${secret.A}"}}, ["/x~1y/~0"], {"x/y": {"~": "alpha"}}),
        ):
            self.assertEqual(fill(value, pointers, known.__getitem__), want)
        for value in ({"a": 1}, {"b": "x"}, [], None):
            with self.assertRaisesRegex(Rejected, "no text at /a"):
                fill(value, ["/a"], known.__getitem__)

    def test_redactor(self):
        self.assertIsNone(redactor({"PIN": "123"}))
        shown = redactor({"PIN": "7316", "LONG": "7316-2287"})
        self.assertEqual(shown.value({"7316": ["7316-2287", 7316, 173160, 8, True, None, 1.5]}),
                         {"[secret PIN]": ["[secret LONG]", "[secret PIN]", "1[secret PIN]0", 8, True, None, 1.5]})

    def test_redactor_knows_the_forms_of_other_encoders(self):
        shown = redactor({"KEY": "a/b+c P@ss w0rd!'x\"==<ü>"})
        for form in (
            "a/b+c P@ss w0rd!'x\"==<ü>",
            "a/b+c P@ss w0rd!'x\\\"==<\\u00fc>",
            "a/b+c P@ss w0rd!\\'x\"==<ü>",
            "a/b+c P@ss w0rd!'\"'\"'x\"==<ü>",
            "a/b+c P@ss w0rd!'\\''x\"==<ü>",
            "a/b%2Bc%20P%40ss%20w0rd%21%27x%22%3D%3D%3C%C3%BC%3E",
            "a%2Fb%2Bc%20P%40ss%20w0rd%21%27x%22%3D%3D%3C%C3%BC%3E",
            "a%2Fb%2Bc+P%40ss+w0rd%21%27x%22%3D%3D%3C%C3%BC%3E",
            "a%2Fb%2Bc%20P%40ss%20w0rd!'x%22%3D%3D%3C%C3%BC%3E",
            "a%2fb%2bc%20P%40ss%20w0rd%21%27x%22%3d%3d%3c%c3%bc%3e",
            "a/b+c P@ss w0rd!&#x27;x&quot;==&lt;ü&gt;",
            "a/b+c P@ss w0rd!&#39;x&#34;==&lt;ü&gt;",
            "a/b+c P@ss w0rd!&#39;x&quot;==&lt;ü&gt;",
        ):
            self.assertEqual(shown.text(f"a {form} b"), "a [secret KEY] b", form)
        for text in (  # base64 of Bearer, of user:, of ab:…:cd, alone, and of xy…z for URLs
            "QmVhcmVyIGEvYitjIFBAc3MgdzByZCEneCI9PTzDvD4=",
            "dXNlcjphL2IrYyBQQHNzIHcwcmQhJ3giPT08w7w+",
            "YWI6YS9iK2MgUEBzcyB3MHJkISd4Ij09PMO8PjpjZA==",
            "YS9iK2MgUEBzcyB3MHJkISd4Ij09PMO8Pg==",
            "eHlhL2IrYyBQQHNzIHcwcmQhJ3giPT08w7w-eg==",
        ):
            self.assertRegex(shown.text(text), r"^.{0,12}\[secret KEY\].{0,8}$", text)


if __name__ == "__main__":
    unittest.main()
