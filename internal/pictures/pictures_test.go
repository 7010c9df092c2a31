package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var refresh = flag.Bool("refresh", false, "write docs/pictures anew")

const root = "../.."

func TestPicturesAreWhatTheCodeSays(t *testing.T) {
	src, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pictures {
		t.Run(p.file, func(t *testing.T) {
			c, err := p.draw(src)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range c.overlaps() {
				t.Error(o)
			}
			file := filepath.Join(root, "docs", "pictures", p.file)
			if *refresh {
				if err := os.WriteFile(file, c.svg(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			have, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(have, c.svg()) {
				t.Errorf("docs/pictures/%s is not what the code says now: run `make pictures`, and look at the picture", p.file)
			}
		})
	}
}
