package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/artifacts"
	"github.com/perdure/perdure/internal/artifacts/s3"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/sqlite"
)

func (a *app) artifactsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:        "artifacts",
		SuggestFor: []string{"artifact", "files", "upload"},
		Short:      "Store and read artifacts: data that is larger than an input or output",
		Long: `An artifact is up to 5 GiB of data, which is named by its SHA-256. Inputs and outputs refer to it by
{"$artifact": "sha256:…", "size": …}. One that no job uses is deleted a day after it was stored.`,
		Example: `  perdure artifacts put scene.blend
  perdure artifacts get sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae --to scene.blend`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Args: noArgs,
	}
	cmd.AddCommand(a.artifactsPutCmd(), a.artifactsGetCmd())
	return cmd
}

func (a *app) artifactsPutCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "put FILE",
		Short: "Store a file as an artifact, and print its name",
		Long: `Stores a file, and prints its name. A file that is stored already is not sent again. If the connection breaks,
the upload is resumed; so is one of the same file that was interrupted, while the node runs.`,
		Example: `  perdure artifacts put scene.blend
  perdure artifacts put scene.blend -o json`,
		Args: argsOf(1, 1, "one FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return &usageError{msg: err.Error()}
			}
			defer func() { _ = f.Close() }() // it was only read
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				ctx, cancel := a.bounded(ctx)
				defer cancel()
				s, err := operate.PutArtifact(ctx, t, f)
				if err != nil {
					return err
				}
				if a.json() {
					return a.object(map[string]any{"$artifact": s.Artifact, "size": s.Size})
				}
				a.printf("%s\n", s.Artifact)
				return nil
			})
		},
	}
	uses(cmd, "server", "store", "output", "timeout")
	return cmd
}

func (a *app) artifactsGetCmd() *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use:   "get HASH",
		Short: "Read an artifact, and compare it with its hash",
		Long: `Writes an artifact to stdout, or to the file of --to, which appears when it is complete. The bytes are compared
with the hash. If they differ, the artifact is damaged: the command exits with 1, --to writes no file, and
what was written to stdout is not to be used.`,
		Example: `  perdure artifacts get sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae > scene.blend
  perdure artifacts get sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae --to scene.blend`,
		Args:              argsOf(1, 1, "one HASH"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				ctx, cancel := a.bounded(ctx)
				defer cancel()
				return a.getArtifact(ctx, t, args[0], out)
			})
		},
	}
	uses(cmd, "server", "store", "timeout")
	cmd.Flags().StringVar(&out, "to", "", "write to this `FILE` (default: stdout)")
	ownVariables(cmd, "artifacts", "to")
	return cmd
}

func (a *app) getArtifact(ctx context.Context, svc operate.Artifacts, hash, to string) (err error) {
	if info, err := os.Stat(to); err == nil && !info.Mode().IsRegular() { // a device would be replaced by a file
		return &usageError{msg: fmt.Sprintf("--to %s is not a regular file", shownArg(to)), hint: "name a file, or write to stdout"}
	}
	content, err := svc.OpenArtifact(ctx, hash)
	if err != nil {
		return err
	}
	defer content.Close()
	if to == "" {
		return copyArtifact(a.out, content, hash)
	}
	f, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*")
	if err != nil {
		return err
	}
	defer func() { _, _ = f.Close(), os.Remove(f.Name()) }() // it is closed and has another name when it is complete
	if err := copyArtifact(f, content, hash); err != nil {
		return err
	}
	return nameFile(f, to)
}

// nameFile closes a file of which all bytes were written, and gives it its name. If one of its steps fails, no file gets the name.
func nameFile(f *os.File, name string) error {
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// copyArtifact copies an artifact, and compares what it has read with the hash.
func copyArtifact(to io.Writer, content io.Reader, hash string) error {
	got, _, err := operate.HashArtifact(io.TeeReader(content, to))
	if err == nil && got != hash {
		err = fmt.Errorf("artifact %s is damaged: the bytes that were read have the hash %s; store it again (perdure artifacts put FILE), or restore it from a backup", hash, got)
	}
	return err
}

// artifactsOf returns the artifacts of a node: in the bucket or directory of a URL, or beside the file of an SQLite store. It returns
// nil if there is no such directory.
func artifactsOf(url, store string) (operate.Artifacts, error) {
	path := ""
	if strings.HasPrefix(url, "s3:") {
		s, err := s3.Open(url)
		if err != nil {
			return nil, &usageError{msg: fmt.Sprintf("--artifacts: %v", err)}
		}
		return s, nil
	}
	if url != "" {
		var err error
		if path, err = artifacts.ParseURL(url); err != nil {
			return nil, &usageError{msg: fmt.Sprintf("--artifacts: %v", err)}
		}
	} else if isSQLite(store) {
		file, err := sqlite.ParseURL(store)
		if err != nil {
			return nil, err
		}
		path = file + ".artifacts"
	}
	if path == "" {
		return nil, nil
	}
	return artifacts.New(path), nil
}
