package plain

import (
	"fmt"
	"path"
	"strings"
)

// Bounds of the files and collect of a step of the agent exec.
const (
	MaxFiles     = 1000 // of each
	MaxFilesName = 128  // bytes of a name in collect
	maxFilePath  = 1024
)

// CheckFilePath returns what is wrong with the path of a file in the working directory; "" if it is valid.
func CheckFilePath(p string) string {
	switch {
	case p == "" || p == "." || len(p) > maxFilePath || strings.Contains(p, "\x00"):
		return fmt.Sprintf("a path has 1 to %d bytes, and no NUL", maxFilePath)
	case path.IsAbs(p) || path.Clean(p) != p || p == ".." || strings.HasPrefix(p, "../"):
		return "a path is relative to the working directory of the command, and does not leave it: no / at its ends, no . and no .."
	}
	return ""
}

// CheckFilePattern returns what is wrong with a pattern for files in the working directory; "" if it is valid.
func CheckFilePattern(p string) string {
	if wrong := CheckFilePath(p); wrong != "" {
		return wrong
	}
	if _, err := path.Match(p, ""); err != nil {
		return "the pattern is not complete: * stands for any text without /, ? for one character, [a-z] for one of these"
	}
	if strings.Contains(p, "**") {
		return "** has no meaning of its own: name each level, as in out/*/*.png"
	}
	return ""
}
