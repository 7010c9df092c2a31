package plain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A value {"$artifact": "sha256:…", "size": 52428800, "type": "image/png"} refers to an artifact: bytes that are stored by
// their hash. It may stand anywhere in an input or output.

// Members of a value that refers to an artifact.
const (
	ArtifactName = "$artifact"
	// ArtifactHashPrefix begins the name of an artifact.
	ArtifactHashPrefix = "sha256:"

	artifactSize = "size"
	artifactType = "type"
	artifactPath = "path"
)

// Bounds of values that refer to artifacts.
const (
	MaxArtifactBytes = 5 << 30
	MaxArtifacts     = 1000 // different ones in one value
	maxArtifactType  = 255
	maxArtifactPath  = 4096
)

// Artifact is a value that refers to an artifact.
type Artifact struct {
	Hash string // sha256: and 64 hexadecimal digits
	Size int64
	Type string // the media type; empty: not known
	Path string // of the file that it was; empty: not known

	Pointer string // its first place in the value, as a JSON Pointer
}

// ArtifactError is a value that refers to an artifact in a wrong form. Pointer is its place, as a JSON Pointer.
type ArtifactError struct{ Pointer, Message string }

func (e *ArtifactError) Error() string {
	if e.Pointer == "" {
		return e.Message
	}
	return e.Pointer + ": " + e.Message
}

// IsArtifactHash reports whether s is the name of an artifact.
func IsArtifactHash(s string) bool {
	digits, ok := strings.CutPrefix(s, ArtifactHashPrefix)
	return ok && len(digits) == 64 && strings.Trim(digits, "0123456789abcdef") == ""
}

// ReadArtifact reads a JSON value that refers to an artifact.
func ReadArtifact(b []byte) (Artifact, error) {
	v, err := decodeAny(b)
	if err != nil {
		return Artifact{}, err
	}
	members, _ := v.(map[string]any)
	if _, ok := members[ArtifactName]; !ok {
		return Artifact{}, &ArtifactError{Message: `no artifact: {"$artifact": "sha256:…", "size": …}`}
	}
	a, bad := readArtifact(members)
	if bad != nil {
		return Artifact{}, bad
	}
	return a, nil
}

// Artifacts returns the artifacts to which a JSON value refers, each hash once, in the order of the hashes. The error is an
// *ArtifactError for the first one in a wrong form. A value without any costs a search for the member's name.
func Artifacts(b []byte) ([]Artifact, error) {
	if !mayHaveArtifacts(b) {
		return nil, nil
	}
	v, err := decodeAny(b)
	if err != nil {
		return nil, err
	}
	found := map[string]Artifact{}
	if bad := walkArtifacts(v, "", found); bad != nil {
		return nil, bad
	}
	all := make([]Artifact, 0, len(found))
	for _, hash := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[hash])
	}
	return all, nil
}

// ArtifactHashes returns the hashes of the artifacts to which a JSON value refers, each once and in order. A value in a wrong
// form is left out.
func ArtifactHashes(b []byte) []string {
	if !mayHaveArtifacts(b) {
		return nil
	}
	return slices.Sorted(maps.Keys(artifactPlaces(b)))
}

// FindArtifact returns the JSON Pointer of the first value in b that refers to an artifact; "" if there is none.
func FindArtifact(b []byte, hash string) string { return artifactPlaces(b)[hash] }

// artifactPlaces returns the artifacts to which a JSON value refers, in whatever form, by their hashes: the first place of each.
func artifactPlaces(b []byte) map[string]string {
	found := map[string]string{}
	if v, err := decodeAny(b); err == nil {
		gatherPlaces(v, "", found)
	}
	return found
}

func gatherPlaces(v any, at string, found map[string]string) {
	switch v := v.(type) {
	case []any:
		for i, kid := range v {
			gatherPlaces(kid, at+"/"+strconv.Itoa(i), found)
		}
	case map[string]any:
		hash, _ := v[ArtifactName].(string)
		if _, known := found[hash]; !known && IsArtifactHash(hash) {
			found[hash] = at
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			gatherPlaces(v[name], at+"/"+pointerEscapes.Replace(name), found)
		}
	}
}

// mayHaveArtifacts is false for nearly all values without artifacts, and never for one with some: an escape such as \u0061 may
// stand for a letter of the member's name.
func mayHaveArtifacts(b []byte) bool {
	if bytes.Contains(b, []byte(ArtifactName)) {
		return true
	}
	const ascii = `\u00`
	for {
		i := bytes.Index(b, []byte(ascii))
		if i < 0 || len(b) <= i+len(ascii) {
			return false
		}
		if b = b[i+len(ascii):]; '2' <= b[0] && b[0] <= '7' {
			return true
		}
	}
}

func decodeAny(b []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

func walkArtifacts(v any, at string, found map[string]Artifact) *ArtifactError {
	switch v := v.(type) {
	case []any:
		for i, kid := range v {
			if bad := walkArtifacts(kid, at+"/"+strconv.Itoa(i), found); bad != nil {
				return bad
			}
		}
	case map[string]any:
		if _, ok := v[ArtifactName]; ok {
			a, bad := readArtifact(v)
			if bad != nil {
				bad.Pointer = at + bad.Pointer
				return bad
			}
			if other, met := found[a.Hash]; met && other.Size != a.Size {
				return &ArtifactError{Pointer: at + "/" + artifactSize, Message: fmt.Sprintf("the same artifact has another size at %s: %d and not %d", other.Pointer, other.Size, a.Size)}
			} else if !met {
				if a.Pointer = at; len(found) == MaxArtifacts {
					return &ArtifactError{Pointer: at, Message: fmt.Sprintf("more than %d artifacts", MaxArtifacts)}
				}
				found[a.Hash] = a
			}
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if bad := walkArtifacts(v[name], at+"/"+pointerEscapes.Replace(name), found); bad != nil {
				return bad
			}
		}
	}
	return nil
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func readArtifact(members map[string]any) (a Artifact, bad *ArtifactError) {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if message := a.set(name, members[name]); message != "" {
			return a, &ArtifactError{Pointer: "/" + pointerEscapes.Replace(name), Message: message}
		}
	}
	if _, ok := members[artifactSize]; !ok {
		return a, &ArtifactError{Message: "an artifact needs its size in bytes"}
	}
	return a, nil
}

// set reads a member, and returns what is wrong with it.
func (a *Artifact) set(name string, v any) string {
	text, isText := v.(string)
	switch name {
	case ArtifactName:
		if a.Hash = text; !IsArtifactHash(text) {
			return "the name of an artifact is sha256: and 64 hexadecimal digits in lower case"
		}
	case artifactSize:
		n, ok := v.(json.Number)
		var err error
		if a.Size, err = strconv.ParseInt(string(n), 10, 64); !ok || err != nil || a.Size < 0 || a.Size > MaxArtifactBytes {
			return fmt.Sprintf("the size of an artifact is a whole number of bytes from 0 to %d", int64(MaxArtifactBytes))
		}
	case artifactType:
		if a.Type = text; !isText || !IsLine(text, maxArtifactType) {
			return fmt.Sprintf("the type of an artifact is a text of at most %d characters", maxArtifactType)
		}
	case artifactPath:
		if a.Path = text; !isText || text == "" || len(text) > maxArtifactPath {
			return fmt.Sprintf("the path of an artifact is a text of at most %d bytes", maxArtifactPath)
		}
	default:
		return "an artifact has no such field: it has $artifact, size, type and path"
	}
	return ""
}
