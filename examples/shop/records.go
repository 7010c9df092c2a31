package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
)

// The files of a shop are in one directory.
func customersFile(dir string) string { return filepath.Join(dir, "customers.json") }
func databaseFile(dir string) string  { return filepath.Join(dir, "orders.db") }
func ledgerFile(dir, service string) string {
	return filepath.Join(dir, service+".jsonl")
}

// writeCustomers records the orders that customers are going to place. The shop does not write this list.
func writeCustomers(dir string, orders []Order) error {
	b, err := json.MarshalIndent(orders, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(customersFile(dir), append(b, '\n'), 0o644)
}

// readRecords reads everything that an audit needs.
func readRecords(ctx context.Context, dir string) (r Records, err error) {
	b, err := os.ReadFile(customersFile(dir))
	if err != nil {
		return r, err
	}
	var orders []Order
	if err := json.Unmarshal(b, &orders); err != nil {
		return r, fmt.Errorf("%s: %w", customersFile(dir), err)
	}
	for _, o := range orders {
		r.Asked = append(r.Asked, o.ID)
	}
	if _, err := os.Stat(databaseFile(dir)); !errors.Is(err, fs.ErrNotExist) {
		db, err := OpenDatabase(databaseFile(dir))
		if err != nil {
			return r, err
		}
		defer func() { _ = db.Close() }()
		if r.Taken, err = db.Taken(ctx); err != nil {
			return r, err
		}
		if r.Done, err = db.Ended(ctx, "done"); err != nil {
			return r, err
		}
		if r.Undone, err = db.Ended(ctx, "undone"); err != nil {
			return r, err
		}
	}
	r.Ledgers = map[string][]Entry{}
	for _, t := range trades {
		err := ReadLedger(ledgerFile(dir, t.Name), func(e Entry) { r.Ledgers[t.Name] = append(r.Ledgers[t.Name], e) })
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// printAudit prints the result of an audit, and reports whether all is well.
func printAudit(w io.Writer, r Records, findings []Finding) (well bool) {
	fmt.Fprintln(w, "What the ledgers say:")
	fmt.Fprintln(w)
	printLedgers(w, r)
	fmt.Fprintln(w)
	ends := map[End]int{}
	wrong := 0
	for _, f := range findings {
		ends[f.End]++
		if len(f.Faults) > 0 {
			wrong++
		}
	}
	fmt.Fprintf(w, "%d orders: %d processed, %d undone, %d half done, %d lost.\n",
		len(findings), ends[Processed], ends[TakenBack], ends[Half], ends[Lost])
	for _, f := range findings {
		for _, fault := range f.Faults {
			fmt.Fprintf(w, "  %s (%s): %s\n", f.Order, f.End, fault)
		}
	}
	if wrong > 0 {
		fmt.Fprintf(w, "WRONG: %d of %d orders.\n", wrong, len(findings))
		return false
	}
	if len(findings) == 0 {
		fmt.Fprintln(w, "WRONG: there are no orders at all.")
		return false
	}
	fmt.Fprintln(w, "Every order is wholly processed or wholly undone, and each effect happened once per key.")
	return true
}

// printLedgers prints how often each kind of entry occurs in each service.
func printLedgers(w io.Writer, r Records) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "service\trequests\teffects\tundone\trefused\ttombstones\ttoo late\terrors\tslow\tbroken off\tdied\t\n")
	for _, trade := range trades {
		kinds, fates := map[Kind]int{}, map[Fate]int{}
		for _, e := range r.Ledgers[trade.Name] {
			kinds[e.Kind]++
			if e.Kind == Asked {
				fates[Fate(e.Note)]++
			}
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", trade.Name,
			kinds[Asked], kinds[Effect], kinds[Undone], kinds[Refused], kinds[Tombstone], kinds[TooLate],
			fates[ErrorBefore]+fates[ErrorAfter], fates[SlowBefore]+fates[SlowAfter],
			fates[DropBefore]+fates[DropAfter], fates[DieBefore]+fates[DieAfter])
	}
	_ = t.Flush()
}
