package secret

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestNamesOfSecrets(t *testing.T) {
	for name, want := range map[string]bool{
		"A": true, "API_KEY": true, "K8S": true, strings.Repeat("A", MaxName): true,
		"": false, "a": false, "Api": false, "_A": false, "8A": false, "A-B": false, "A.B": false, "../A": false, "A/B": false, "Ä": false, "A\x00": false, "A ": false,
		strings.Repeat("A", MaxName+1): false,
	} {
		if IsName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// store resolves the names in it.
type store map[string]string

func (s store) get(name string) (string, error) {
	if v, ok := s[name]; ok {
		return v, nil
	}
	return "", errors.New("no " + name)
}

func TestOnlyTheStringsAtPointersAreResolved(t *testing.T) {
	known := store{"A": "alpha", "B": `b"\` + "\n", "REF": "${secret.A}"}
	for _, c := range []struct {
		input    string
		pointers []string
		want     string
	}{
		{`{"h":"Bearer ${secret.A}","data":"${secret.A}"}`, []string{"/h"}, `{"h":"Bearer alpha","data":"${secret.A}"}`},
		{`{"l":[1,"${secret.A}","${secret.A}"]}`, []string{"/l/1"}, `{"l":[1,"alpha","${secret.A}"]}`},
		{`"${secret.A}"`, []string{""}, `"alpha"`},
		{`{"a":"${secret.B}"}`, []string{"/a"}, `{"a":"b\"\\\n"}`},
		{`{"a":"${secret.A}${secret.A}-${secret.B}"}`, []string{"/a"}, `{"a":"alphaalpha-b\"\\\n"}`},
		{`{"a":"${secret.REF}"}`, []string{"/a"}, `{"a":"${secret.A}"}`}, // a value is not read
		{`{"a":"${secret.REF}secret.A}"}`, []string{"/a"}, `{"a":"${secret.A}secret.A}"}`},
		{`{"a":"$${secret.A} ${secret.a} ${secret.A"}`, []string{"/a"}, `{"a":"$alpha ${secret.a} ${secret.A"}`},
		{`{"x/y":{"~":"${secret.A}"}}`, []string{"/x~1y/~0"}, `{"x/y":{"~":"alpha"}}`},
		{`{"n": 1.50, "b": [true , null], "a":"${secret.A}"}`, []string{"/a"}, `{"n":1.50,"b":[true , null],"a":"alpha"}`},
		{`{"a":{"b":"${secret.A}","c":"${secret.A}"}}`, []string{"/a/b", "/a/c"}, `{"a":{"b":"alpha","c":"alpha"}}`},
	} {
		got, _, err := Fill(json.RawMessage(c.input), c.pointers, known.get)
		if err != nil || string(got) != c.want {
			t.Errorf("%s at %q: %s, %v; want %s", c.input, c.pointers, got, err, c.want)
		}
	}
}

func TestFillNamesEverythingThatIsMissing(t *testing.T) {
	_, _, err := Fill(json.RawMessage(`{"a":"${secret.X}${secret.X}","b":"${secret.Y}","c":"${secret.A}"}`), []string{"/a", "/b", "/c"}, store{"A": "alpha"}.get)
	if err == nil || err.Error() != "no X; no Y" {
		t.Error(err)
	}
	for input, want := range map[string]string{
		`{"b":"x"}`: "no text at one of /a",
		`{"a":1}`:   "no text at one of /a",
		`{"a":`:     "not JSON",
		`[]`:        "no text at one of /a",
	} {
		if _, _, err := Fill(json.RawMessage(input), []string{"/a"}, store{}.get); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", input, err)
		}
	}
	if _, _, err := Fill(json.RawMessage(`{}`), []string{"a"}, store{}.get); err == nil {
		t.Error("a pointer without / was accepted")
	}
}

func TestTextAtPointer(t *testing.T) {
	input := json.RawMessage(`{"a":{"b":["x",{"c/d":"y"}]},"n":1,"a2":"\u00e9"}`)
	for pointer, want := range map[string]string{"/a/b/0": "x", "/a/b/1/c~1d": "y", "/a2": "é"} {
		if got, ok := TextAt(input, pointer); !ok || got != want {
			t.Errorf("%s: %q, %v", pointer, got, ok)
		}
	}
	for _, pointer := range []string{"", "/a", "/n", "/a/b/2", "/a/b/x", "/z", "/n/0"} {
		if got, ok := TextAt(input, pointer); ok {
			t.Errorf("%s: %q", pointer, got)
		}
	}
}

const canary = "s3cr\"t <&>/ü\\w:+ 42"

// I18: a value is removed in each form in which messages and echoed requests have it.
func TestRedactorKnowsTheFormsOfAValue(t *testing.T) {
	r := NewRedactor([]Value{{"KEY", canary}})
	for _, f := range formsOf(canary) {
		if got := r.Text("a " + f + " b"); got != "a [secret KEY] b" {
			t.Errorf("%s: %s", f, got)
		}
	}
	for _, text := range []string{fmt.Sprintf("%q", canary), string(must(json.Marshal(map[string]string{"x": canary})))} {
		if got := r.Text(text); strings.Contains(got, "s3cr") {
			t.Errorf("%s: %s", text, got)
		}
	}
	var none *Redactor
	if none.Text("x") != "x" || string(none.JSON([]byte("1"))) != "1" || none.Part("x", true, true) != "x" || none.Error(nil) != nil || string(none.Output(nil)) != "" {
		t.Error("a redactor without secrets changes a text")
	}
	if NewRedactor([]Value{{"PIN", "123"}}) != nil {
		t.Error("a value that is too short is redacted")
	}
}

// I18: the forms are those of encoders of other languages, too, and base64 of a text that contains the value.
func TestRedactorKnowsOtherEncoders(t *testing.T) {
	const value = "a/b+c P@ss w0rd!'x\"==<ü>"
	r := NewRedactor([]Value{{"KEY", value}})
	for _, f := range []string{
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
	} {
		if got := r.Text("a " + f + " b"); got != "a [secret KEY] b" {
			t.Errorf("%s: %s", f, got)
		}
	}
	for _, f := range []string{ // of Bearer, of user:, of ab:…:cd, alone, and of xy…z for URLs
		"QmVhcmVyIGEvYitjIFBAc3MgdzByZCEneCI9PTzDvD4=",
		"dXNlcjphL2IrYyBQQHNzIHcwcmQhJ3giPT08w7w+",
		"YWI6YS9iK2MgUEBzcyB3MHJkISd4Ij09PMO8PjpjZA==",
		"YS9iK2MgUEBzcyB3MHJkISd4Ij09PMO8Pg==",
		"eHlhL2IrYyBQQHNzIHcwcmQhJ3giPT08w7w-eg==",
	} {
		if got := r.Text(f); !strings.Contains(got, "[secret KEY]") || len(got) > len("[secret KEY]")+16 {
			t.Errorf("%s: %s", f, got)
		}
	}
}

func TestOutputsAreRedacted(t *testing.T) {
	key := "{\n  \"id\": \"12345\",\n  \"private_key\": \"-----BEGIN KEY-----\\nabcdefghijklmnop\\n\"\n}"
	r := NewRedactor([]Value{{"KEY", canary}, {"PIN", "7316"}, {"LONG", "7316-2287"}, {"FILE", key}, {"PEM", "-----BEGIN-----\nAAAABBBBCCCCDDDD1\n-----END-----"}})
	for input, want := range map[string]string{
		`{"a":"x 7316-2287 7316","n":[7316, 173160, 8]}`: `{"a":"x [secret LONG] [secret PIN]","n":["[secret PIN]", "1[secret PIN]0", 8]}`,
		`{"7316":true}`:                    `{"[secret PIN]":true}`,
		`{"ok":"\u00e9","n":1e3}`:          `{"ok":"\u00e9","n":1e3}`,
		`"\u0037316"`:                      `"[secret PIN]"`,
		`["AAAABBBBCCCCDDDD1"]`:            `["[secret PEM]"]`,
		string(must(json.Marshal(canary))): `"[secret KEY]"`,
		string(must(json.Marshal(key))):    `"[secret FILE]"`,
		`{"file":` + key + `}`:             `"{\"file\":[secret FILE]}"`,
	} {
		if got := r.Output(json.RawMessage(input)); string(got) != want {
			t.Errorf("%s:\n%s, not\n%s", input, got, want)
		}
	}
	if got := r.JSON([]byte("not JSON: 7316")); string(got) != "not JSON: [secret PIN]" {
		t.Errorf("%s", got)
	}
	if got := r.Output(json.RawMessage("\xff7316")); string(got) != "\xff[secret PIN]" {
		t.Errorf("%s", got)
	}
}

// I18: where a text is cut within a secret, no part of it is left.
func TestPartOfASecretIsRedacted(t *testing.T) {
	const value = "abcdefgh-ijkl"
	r := NewRedactor([]Value{{"K", value}})
	for k := 1; k < len(value); k++ {
		if got := r.Part("x "+value[:k], false, true); got != "x [secret K]" {
			t.Errorf("cut after %d: %s", k, got)
		}
		if got := r.Part(value[k:]+" x", true, false); got != "[secret K] x" {
			t.Errorf("cut before %d: %s", k, got)
		}
	}
	for text, want := range map[string]string{value: "[secret K]", "efgh": "[secret K]", "x " + value + " y": "x [secret K] y", "l x a": "[secret K] x [secret K]"} {
		if got := r.Part(text, true, true); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
	if got := r.Part("x a", false, false); got != "x a" {
		t.Error(got)
	}
}

func TestRedactedErrorStillMatches(t *testing.T) {
	inner := errors.New("dial 7316")
	err := NewRedactor([]Value{{"PIN", "7316"}}).Error(fmt.Errorf("x: %w", inner))
	if err.Error() != "x: dial [secret PIN]" || !errors.Is(err, inner) {
		t.Error(err)
	}
}

func FuzzOutputIsJSONWithoutSecrets(f *testing.F) {
	f.Add(`{"a":"7316"}`, "7316")
	f.Add(`[1,"x\u0000y",{"k":-1.5e9}]`, `,"x`)
	f.Fuzz(func(t *testing.T, output, value string) {
		if !json.Valid([]byte(output)) || strings.Contains("[secret KEY]", value) {
			t.Skip()
		}
		r := NewRedactor([]Value{{"KEY", value}})
		got := r.Output(json.RawMessage(output))
		if !json.Valid(got) {
			t.Fatalf("%s without %q is no JSON: %s", output, value, got)
		}
	})
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
