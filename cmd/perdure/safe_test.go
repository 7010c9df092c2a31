package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestDeceptive(t *testing.T) {
	for r, want := range map[rune]bool{
		0: true, '\a': true, '\n': true, 0x1b: true, 0x7f: true, 0x80: true, 0x85: true, 0x9b: true, 0x9f: true,
		0xa0: false, 0xad: true, 0x200b: true, 0x200c: false, 0x200d: false, 0x200e: true, 0x200f: true, 0x2028: true, 0x2029: true,
		0x202a: true, 0x202e: true, 0x2060: true, 0x2066: true, 0x2069: true, 0xfeff: true, 0xfff9: true, 0x061c: true, 0x0600: false,
		0xe0000: true, 0xe0001: true, 0xe0041: true, 0xe007f: true, 0xe01ef: true, 0xfe0f: false,
		' ': false, '~': false, 'é': false, '語': false, '…': false, '\ufffd': false, 0x1f468: false,
	} {
		if deceptive(r) != want {
			t.Errorf("%U: %v", r, !want)
		}
	}
}

func TestPlain(t *testing.T) {
	for s, want := range map[string]string{
		"a\tb\r\nc": "a b  c", "a\u200bb\u2028c": "a\ufffdb\ufffdc", "a\x9bb": "a\ufffdb", "a\u009bb": "a\ufffdb", "\U000e0041": "\ufffd",
		"👨\u200d👩\u200d👧 zażółć": "👨\u200d👩\u200d👧 zażółć",
	} {
		if got := plain(s); got != want {
			t.Errorf("%q: %q, not %q", s, got, want)
		}
	}
	st := style{on: true}
	if got := st.safe(st.bad("red") + "\x1b[2J\n\x1b]0;title\a"); got != "\x1b[31mred\x1b[0m\ufffd[2J\n\ufffd]0;title\ufffd" {
		t.Errorf("%q", got)
	}
	if got := (style{}).safe("\x1b[31mred"); got != "\ufffd[31mred" {
		t.Errorf("%q", got)
	}
	if got := message("http://me:hunter2@h\x1b[2J"); strings.Contains(got, "hunter2") || strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
}

// JSON of any string is read as that string, and has no deceptive character in it.
func TestEscapedJSON(t *testing.T) {
	var all strings.Builder
	for r := range rune(0x10000) {
		all.WriteRune(r)
	}
	for _, s := range []string{"plain", "", tricks, tricks + "\xff\x9b" + tricks, all.String(), "\U000e0000\U000e0fff\U000e1000\U0010ffff"} {
		var b bytes.Buffer
		for range 2 { // also what comes after it
			if err := (&app{out: &printer{w: &b}}).object(map[string]string{s: s}); err != nil {
				t.Fatal(err)
			}
		}
		want := strings.Map(func(r rune) rune { return r }, s) // bytes that are not UTF-8 become U+FFFD
		for line := range strings.Lines(b.String()) {
			var got map[string]string
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if got[want] != want {
				t.Errorf("%q became %q", s, got)
			}
			if i := strings.IndexFunc(strings.TrimSuffix(line, "\n"), deceptive); i >= 0 {
				t.Errorf("%q at %d", line, i)
			}
		}
		if !utf8.Valid(b.Bytes()) {
			t.Errorf("%q", &b)
		}
	}
}

// What a node logs has neither the password of a URL nor deceptive characters, in both formats (I18).
func TestLogIsSafe(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var b bytes.Buffer
		log := (&app{err: &b}).logger("info", format)
		log.Info("shown", "url", "http://me:hunter2@h/x", "error", errors.New("cannot parse `postgres://u:hunter2@h`: bad"), "name", tricks)
		log.With("url", "postgres://h/d?password=hunter2").WithGroup("g").Info("shown", "dsn", "host=h password=hunter2")
		text := strings.ReplaceAll(b.String(), "\n", "")
		if i := strings.IndexFunc(text, deceptive); i >= 0 || strings.Contains(text, "hunter2") || strings.Count(text, "shown") != 2 {
			t.Errorf("%s: %q", format, text)
		}
	}
}
