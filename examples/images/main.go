// Command images is the agent of examples/images.yaml: it draws an album of pictures, of which one in a hundred is damaged, and
// makes a small picture of each.
package main

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
)

type album struct {
	Dir   string `json:"dir"`
	Count int    `json:"count"`
}

type picture struct {
	Dir   string `json:"dir"`
	Image string `json:"image"`
	Width int    `json:"width"`
}

type counts struct{ Total, Done, Failed int }

type page struct {
	Dir    string `json:"dir"`
	Counts counts `json:"counts"`
}

// newAgent returns the agent. All of its actions can be repeated: each writes the same files again.
func newAgent() *perdure.Agent {
	a := perdure.NewAgent("images")
	perdure.Handle(a, "draw", perdure.Op[album, []string]{Do: draw})
	perdure.Handle(a, "resize", perdure.Op[picture, string]{
		Do:   resize,
		Undo: func(_ context.Context, p picture, _ string) error { return remove(p.small()) },
	})
	perdure.Handle(a, "publish", perdure.Op[page, string]{
		Do:   publish,
		Undo: func(_ context.Context, p page, _ string) error { return remove(filepath.Join(p.Dir, "index.txt")) },
	})
	return a
}

// draw writes the pictures of an album, and returns their names.
func draw(ctx context.Context, a album) (names []string, err error) {
	if err := os.MkdirAll(filepath.Join(a.Dir, "small"), 0o750); err != nil {
		return nil, err
	}
	for i := range a.Count {
		name := fmt.Sprintf("%05d.png", i)
		whole := image.NewGray(image.Rect(0, 0, 64, 64))
		for p := range whole.Pix {
			whole.Pix[p] = uint8(p * (i + 1) / 64)
		}
		err := writeImage(filepath.Join(a.Dir, name), whole)
		if i%100 == 99 {
			err = os.WriteFile(filepath.Join(a.Dir, name), []byte("this is not a picture"), 0o600)
		}
		if names = append(names, name); err != nil || ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err())
		}
	}
	return names, nil
}

func (p *picture) small() string { return filepath.Join(p.Dir, "small", p.Image) }

// resize makes a small picture. A damaged one is rejected: a second try would find the same.
func resize(_ context.Context, p picture) (string, error) {
	f, err := os.Open(filepath.Join(p.Dir, p.Image))
	if err != nil {
		return "", err
	}
	whole, err := png.Decode(f)
	_ = f.Close() // it was only read
	if err != nil {
		return "", perdure.Rejected(fmt.Errorf("%s: %w", p.Image, err), "damaged")
	}
	from := whole.Bounds()
	small := image.NewGray(image.Rect(0, 0, p.Width, p.Width*from.Dy()/from.Dx()))
	to := small.Bounds()
	for y := range to.Dy() {
		for x := range to.Dx() {
			at := whole.At(from.Min.X+x*from.Dx()/to.Dx(), from.Min.Y+y*from.Dy()/to.Dy())
			small.Set(x, y, color.GrayModel.Convert(at))
		}
	}
	return p.Image, writeImage(p.small(), small)
}

// writeImage writes a picture as a whole: another process sees all of it, or none.
func writeImage(path string, m image.Image) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	err = png.Encode(f, m)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), path)
}

func publish(_ context.Context, p page) (string, error) {
	text := fmt.Sprintf("%d of %d pictures\n", p.Counts.Done, p.Counts.Total)
	return text, os.WriteFile(filepath.Join(p.Dir, "index.txt"), []byte(text), 0o600)
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func main() {
	server := "http://127.0.0.1:7420"
	if len(os.Args) > 1 {
		server = os.Args[1]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	node, err := client.New(server)
	if err == nil {
		err = node.Serve(ctx, client.ServeConfig{Name: "images", Heartbeat: time.Second}, newAgent())
	}
	if err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}
