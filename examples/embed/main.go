// A program that embeds a node: a job is done and undone, on an SQLite file.
package main

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/store"
)

func main() {
	ctx := context.Background()
	db := must(store.Open(ctx, "sqlite:shop.db", store.Migrated)) // or postgres://user@host/database
	defer func() { must(0, db.Close()) }()
	bank := perdure.NewAgent("bank")
	perdure.Handle(bank, "charge", perdure.Op[int, string]{
		Do:   func(_ context.Context, cents int) (string, error) { return fmt.Sprint("receipt over ", cents), nil },
		Undo: func(_ context.Context, _ int, receipt string) error { fmt.Println("refund of", receipt); return nil },
	})
	n := node.New(db, node.Config{Agents: []*perdure.Agent{bank}})
	must(0, n.Start(ctx))
	defer func() { must(0, n.Stop(ctx)) }()
	job, _, err := perdure.Submit(ctx, n, perdure.Define("order").Step("charge", "bank").With(4200).Undo())
	id := must(job, err).ID.String()
	fmt.Println(must(perdure.Wait(ctx, n, id)).Current)
	must(n.Act(ctx, id, perdure.Act{Verb: perdure.VerbUndo, Author: "anna"}))
	fmt.Println(must(perdure.Wait(ctx, n, id)).Current)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
