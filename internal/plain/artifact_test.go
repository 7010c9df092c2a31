package plain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

var zeros = "sha256:" + strings.Repeat("0", 64)

// F245: values that refer to artifacts in a wrong form are found wherever they stand, with their place.
func TestArtifactsAreChecked(t *testing.T) {
	ones := strings.ReplaceAll(zeros, "0", "1")
	good := func(hash string) string { return `{"$artifact":"` + hash + `","size":5}` }
	for in, want := range map[string]string{
		`null`:                     "",
		`{"artifact":"x"}`:         "",
		`"$artifact"`:              "",
		`{"a":"\u0041 $artifact"}`: "",
		good(zeros):                zeros,
		`[{"a":` + good(ones) + `},` + good(zeros) + `,` + good(zeros) + `]`:               zeros + " " + ones,
		`{"\u0024artifact":"` + zeros + `","size":5368709120}`:                             zeros,
		`{"$artifact":"` + zeros + `","size":0,"type":"image/png","path":"a/b"}`:           zeros,
		`{"a":[0,{"$artifact":"sha256:0","size":5}]}`:                                      "/a/1/$artifact",
		`{"a/b":{"$artifact":"` + zeros + `"}}`:                                            "/a~1b",
		`{"$artifact":"` + strings.ToUpper(zeros) + `","size":5}`:                          "/$artifact",
		`{"$artifact":1,"size":5}`:                                                         "/$artifact",
		`{"$artifact":"` + zeros + `","size":-1}`:                                          "/size",
		`{"$artifact":"` + zeros + `","size":5368709121}`:                                  "/size",
		`{"$artifact":"` + zeros + `","size":1.5}`:                                         "/size",
		`{"$artifact":"` + zeros + `","size":"5"}`:                                         "/size",
		`{"$artifact":"` + zeros + `","size":5,"type":""}`:                                 "/type",
		`{"$artifact":"` + zeros + `","size":5,"type":"` + strings.Repeat("x", 256) + `"}`: "/type",
		`{"$artifact":"` + zeros + `","size":5,"path":""}`:                                 "/path",
		`{"$artifact":"` + zeros + `","size":5,"mode":1}`:                                  "/mode",
		`{"$artifact":"` + zeros + `","size":5,"type":"` + strings.Repeat("x", 255) + `"}`: zeros,
	} {
		found, err := Artifacts([]byte(in))
		got := ""
		for _, a := range found {
			got = strings.TrimSpace(got + " " + a.Hash)
		}
		if bad := (*ArtifactError)(nil); errors.As(err, &bad) {
			got = bad.Pointer
		}
		if got != want {
			t.Errorf("%s: %q (%v), want %q", in, got, err, want)
		}
		if hashes := ArtifactHashes([]byte(in)); err == nil && strings.Join(hashes, " ") != want {
			t.Errorf("%s: hashes %q", in, hashes)
		}
	}
}

func TestArtifactsAreBounded(t *testing.T) {
	list := make([]string, MaxArtifacts+1)
	for i := range list {
		list[i] = fmt.Sprintf(`{"$artifact":"sha256:%064x","size":1}`, i)
	}
	if _, err := Artifacts([]byte("[" + strings.Join(list, ",") + "]")); err == nil {
		t.Error("more than the bound")
	}
	if found, err := Artifacts([]byte("[" + strings.Join(slices.Concat(list[1:], list[1:]), ",") + "]")); err != nil || len(found) != MaxArtifacts || found[0].Pointer != "/0" {
		t.Errorf("at the bound: %d, %v", len(found), err)
	}
}

// A value without the name of the member is not parsed.
func BenchmarkArtifactsOfOtherValues(b *testing.B) {
	v := []byte(`{"a":"` + strings.Repeat("x", 4096) + `"}`)
	b.SetBytes(int64(len(v)))
	for b.Loop() {
		if found, err := Artifacts(v); found != nil || err != nil {
			b.Fatal(err)
		}
	}
}
