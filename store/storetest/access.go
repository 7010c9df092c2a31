package storetest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

var accessChecks = []check{
	{"Access/EveryField", credentialFields},
	{"Access/FindByID", credentialsByID},
	{"Access/ListInPages", credentialPages},
	{"Access/IdIsTakenOnce", credentialTaken},
	{"Access/SessionsEndWithTheirToken", sessionsOfTokens},
	{"Access/SessionsOfATokenOrUser", sessionsOf},
	{"Access/AdminToken", adminToken},
	{"Access/OtherAdmin", otherAdmin},
	{"Access/UseIsRecordedForwards", credentialTouched},
	{"Access/RollbackKeepsCredentials", credentialRolledBack},
	{"Access/AuditNewestFirst", auditFilters},
	{"Access/OldOnesAreForgotten", accessForgotten},
}

func credentialID(n int) string { return fmt.Sprintf("cred%08d", n) }

// newCredential returns a token of which every field has a value, except Token, which only sessions have.
func newCredential(n int, edits ...func(*kernel.Credential)) *kernel.Credential {
	c := &kernel.Credential{ID: credentialID(n), Kind: kernel.TokenCredential, Hash: sha256.Sum256([]byte{byte(n)}), Previous: sha256.Sum256([]byte{byte(n), 1}),
		PreviousUntil: at(time.Minute), Name: "ci ü <b>", Rights: operate.Rights{Role: operate.Submitter, Types: []string{"order", "refund"}, Groups: []string{"ü", "b c"}},
		CreatedBy: "anna", CreatedAt: at(0), RotatedAt: at(time.Second), ExpiresAt: at(time.Hour), UsedAt: at(2 * time.Second)}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func isSession(token string) func(*kernel.Credential) {
	return func(c *kernel.Credential) { c.Kind, c.Token = kernel.SessionCredential, token }
}

func (s *suite) addCredentials(list ...*kernel.Credential) {
	s.Helper()
	s.update(func(tx kernel.Tx) {
		for _, c := range list {
			s.must(tx.AddCredential(c))
		}
	})
}

func (s *suite) credential(n int) *kernel.Credential {
	s.Helper()
	found, err := s.store.FindCredentials(ctx, []string{credentialID(n)})
	s.must(err)
	if len(found) == 0 {
		return nil
	}
	return found[0]
}

// Every field is stored and read. A save changes hashes and times only.
func credentialFields(s *suite) {
	s.equal("no credential", s.credential(1), (*kernel.Credential)(nil))
	want := newCredential(1)
	never := newCredential(2, isSession(credentialID(1)), func(c *kernel.Credential) {
		c.Previous, c.PreviousUntil, c.RotatedAt, c.ExpiresAt, c.UsedAt = [32]byte{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}
		c.Rights = operate.Rights{Role: operate.Agent, Agents: []string{"payments"}, Hosts: []string{"h1", "h2"}}
	})
	s.addCredentials(want, never)
	s.equal("as it was added", s.credential(1), want)
	s.equal("without times", s.credential(2), never)
	checkTx(s, "locked", want, func(tx kernel.Tx) (*kernel.Credential, error) { return tx.LockCredential(want.ID) })
	checkTx(s, "no such credential", (*kernel.Credential)(nil), func(tx kernel.Tx) (*kernel.Credential, error) { return tx.LockCredential("x") })
	checkTx(s, "tokens", 1, func(tx kernel.Tx) (int, error) { return tx.CountCredentials(kernel.TokenCredential) })
	s.update(func(tx kernel.Tx) {
		c, err := tx.LockCredential(want.ID)
		s.must(err)
		c.Hash, c.Previous, c.PreviousUntil, c.RotatedAt, c.ExpiresAt, c.UsedAt = c.Previous, c.Hash, at(5*time.Second), at(6*time.Second), at(2*time.Hour), at(7*time.Second)
		*want = *c
		c.Kind, c.Name, c.Rights, c.Token, c.CreatedBy, c.CreatedAt = kernel.SessionCredential, "x", operate.Rights{Role: operate.Admin}, "x", "x", at(time.Hour)
		s.must(tx.SaveCredential(c))
	})
	s.equal("after a save", s.credential(1), want)
}

func credentialsByID(s *suite) {
	s.addCredentials(newCredential(1), newCredential(2), newCredential(3, isSession("")))
	one, two, three := credentialID(1), credentialID(2), credentialID(3)
	for _, c := range []struct{ ids, want []string }{{nil, nil}, {[]string{"x", `"`}, nil}, {[]string{two}, []string{two}},
		{[]string{three, "x", one}, []string{one, three}}, {[]string{two, two, one}, []string{one, two}}} {
		found, err := s.store.FindCredentials(ctx, c.ids)
		s.must(err)
		var got []string
		for _, f := range found {
			got = append(got, f.ID)
		}
		slices.Sort(got)
		s.equal(fmt.Sprintf("credentials %q", c.ids), got, c.want)
	}
}

func credentialPages(s *suite) {
	s.addCredentials(newCredential(1), newCredential(2), newCredential(3, isSession("")), newCredential(4))
	for _, c := range []struct {
		kind  kernel.CredentialKind
		after string
		max   int
		want  []int
	}{{kernel.TokenCredential, "", 9, []int{1, 2, 4}}, {kernel.TokenCredential, "", 2, []int{1, 2}}, {kernel.TokenCredential, credentialID(2), 2, []int{4}},
		{kernel.TokenCredential, credentialID(4), 2, nil}, {kernel.SessionCredential, "", 9, []int{3}}, {kernel.SessionCredential, "", 0, nil}} {
		found, err := s.store.Credentials(ctx, c.kind, c.after, c.max)
		s.must(err)
		var got, want []string
		for _, f := range found {
			got = append(got, f.ID)
		}
		for _, n := range c.want {
			want = append(want, credentialID(n))
		}
		s.equal(fmt.Sprintf("%d of kind %s after %q", c.max, c.kind, c.after), got, want)
	}
}

func credentialTaken(s *suite) {
	s.addCredentials(newCredential(1))
	other := newCredential(1, func(c *kernel.Credential) { c.Name = "other" })
	if err := s.store.Update(ctx, func(tx kernel.Tx) error { return tx.AddCredential(other) }); !errors.Is(err, kernel.ErrStale) {
		s.Errorf("a second one with the same id: %v", err)
	}
	if err := s.store.Update(ctx, func(tx kernel.Tx) error { return tx.SaveCredential(newCredential(9)) }); !errors.Is(err, kernel.ErrStale) {
		s.Errorf("a save of one that is not there: %v", err)
	}
	s.equal("the first", s.credential(1), newCredential(1))
}

// A deleted token takes its sessions with it, and no others.
func sessionsOfTokens(s *suite) {
	s.addCredentials(newCredential(1), newCredential(2), newCredential(3, isSession(credentialID(1))), newCredential(4, isSession(credentialID(2))), newCredential(5, isSession("")))
	s.update(func(tx kernel.Tx) {
		s.must(tx.DeleteCredential(credentialID(1)))
		s.must(tx.DeleteCredential(credentialID(7)))
	})
	for n, left := range map[int]bool{1: false, 2: true, 3: false, 4: true, 5: true} {
		s.equal(fmt.Sprint("credential ", n, " is left"), s.credential(n) != nil, left)
	}
	s.update(func(tx kernel.Tx) { s.must(tx.DeleteCredential("")) })
	s.equal("a session without a token is left", s.credential(5) != nil, true)
}

// Sessions are listed by their token, or by the name of a user without one, the newest first.
func sessionsOf(s *suite) {
	began := func(after time.Duration) func(*kernel.Credential) {
		return func(c *kernel.Credential) { c.CreatedAt = at(after) }
	}
	named := func(name string) func(*kernel.Credential) { return func(c *kernel.Credential) { c.Name = name } }
	of := credentialID(1)
	s.addCredentials(newCredential(1), newCredential(2, isSession(of), began(2*time.Second)), newCredential(3, isSession(of), began(3*time.Second), named("other")),
		newCredential(4, isSession(of), began(time.Second)), newCredential(5, isSession(of), began(2*time.Second)), newCredential(6, isSession(credentialID(9))),
		newCredential(7, isSession(""), named("ben")), newCredential(8, isSession(""), named("Ben")), newCredential(9, named("ben")))
	for _, c := range []struct {
		token, name string
		max         int
		want        []int
	}{{of, "", 9, []int{3, 5, 2, 4}}, {of, "ben", 2, []int{3, 5}}, {of, "", 0, nil}, {"", "ben", 9, []int{7}}, {"", "", 9, nil}, {"x", "ben", 9, nil}} {
		var want []string
		for _, n := range c.want {
			want = append(want, credentialID(n))
		}
		checkTx(s, fmt.Sprintf("%d of %q, %q", c.max, c.token, c.name), want, func(tx kernel.Tx) ([]string, error) { return tx.SessionsOf(c.token, c.name, c.max) })
	}
}

func otherAdmin(s *suite) {
	admin := func(c *kernel.Credential) { c.Rights, c.ExpiresAt = operate.Rights{Role: operate.Admin}, time.Time{} }
	other := func(n int, ago time.Duration) (has bool) {
		s.Helper()
		s.update(func(tx kernel.Tx) {
			var err error
			has, err = tx.HasOtherAdmin(credentialID(n), at(ago))
			s.must(err)
		})
		return has
	}
	s.equal("none", other(1, 0), false)
	s.addCredentials(newCredential(1, admin), newCredential(2), newCredential(3, admin, isSession("")))
	s.equal("a submitter and a session of an admin are none", other(1, 0), false)
	s.equal("the admin itself", other(2, 0), true)
	s.addCredentials(newCredential(4, admin, func(c *kernel.Credential) { c.ExpiresAt = at(time.Hour) }))
	s.equal("before it expires", other(1, time.Hour-time.Microsecond), true)
	s.equal("when it expires", other(1, time.Hour), false)
	s.equal("one that does not expire", other(4, 24*time.Hour), true)
}

func adminToken(s *suite) {
	has := func(want bool, what string) {
		s.Helper()
		found, err := s.store.HasAdminToken(ctx)
		s.must(err)
		s.equal(what, found, want)
	}
	admin := func(c *kernel.Credential) { c.Rights = operate.Rights{Role: operate.Admin} }
	has(false, "an empty store")
	s.addCredentials(newCredential(1), newCredential(2, isSession(""), admin))
	has(false, "a token of another role, and a session")
	s.addCredentials(newCredential(3, admin, func(c *kernel.Credential) { c.ExpiresAt = at(-time.Hour) }))
	has(true, "an expired admin token counts")
	s.update(func(tx kernel.Tx) { s.must(tx.DeleteCredential(credentialID(3))) })
	has(false, "after its deletion")
}

func credentialTouched(s *suite) {
	s.addCredentials(newCredential(1), newCredential(2, func(c *kernel.Credential) { c.UsedAt = time.Time{} }))
	for n, moment := range map[int]time.Time{1: at(time.Minute), 2: at(time.Second), 9: at(time.Second)} {
		s.must(s.store.TouchCredential(ctx, credentialID(n), moment))
	}
	s.must(s.store.TouchCredential(ctx, credentialID(1), at(time.Second)))
	s.equal("the later use", s.credential(1).UsedAt, at(time.Minute))
	s.equal("the first use", s.credential(2).UsedAt, at(time.Second))
}

func credentialRolledBack(s *suite) {
	s.addCredentials(newCredential(1), newCredential(2, isSession(credentialID(1))))
	oops := errors.New("oops")
	err := s.store.Update(ctx, func(tx kernel.Tx) error {
		s.must(tx.AddCredential(newCredential(3)))
		c, err := tx.LockCredential(credentialID(1))
		s.must(err)
		c.Hash = [32]byte{}
		s.must(tx.SaveCredential(c))
		s.must(tx.DeleteCredential(credentialID(1)))
		s.must(tx.Save(&kernel.Changes{Audit: []operate.AuditEntry{newAudit(1)}}))
		return oops
	})
	if !errors.Is(err, oops) {
		s.Fatal(err)
	}
	s.equal("the token", s.credential(1), newCredential(1))
	s.equal("its session", s.credential(2) != nil, true)
	s.equal("the new one", s.credential(3), (*kernel.Credential)(nil))
	s.equal("the audit log", s.audit(kernel.AuditFilter{}), nil)
}

// newAudit returns an entry of which every field has a value.
func newAudit(n int, edits ...func(*operate.AuditEntry)) operate.AuditEntry {
	e := operate.AuditEntry{At: at(time.Duration(n) * time.Second), Author: "anna", OnBehalfOf: "ben ü", Via: operate.ViaToken, Credential: credentialID(n), Address: "::1",
		Act: "undo", Job: id(n), Target: "charge", Reason: "why\nü <b>", Outcome: operate.AuditRefused, Code: perdure.CodeForbidden, Count: n}
	for _, edit := range edits {
		edit(&e)
	}
	return e
}

// audit returns entries without their ids, which may have gaps.
func (s *suite) audit(f kernel.AuditFilter) []operate.AuditEntry {
	s.Helper()
	found, err := s.store.AuditLog(ctx, f)
	s.must(err)
	for i := range found {
		if i > 0 && found[i].ID >= found[i-1].ID {
			s.Errorf("entry %d follows %d", found[i].ID, found[i-1].ID)
		}
	}
	found = slices.Clone(found)
	for i := range found {
		found[i].ID = 0
	}
	return found
}

func auditFilters(s *suite) {
	s.equal("an empty log", s.audit(kernel.AuditFilter{}), nil)
	all := []operate.AuditEntry{newAudit(1), newAudit(2, func(e *operate.AuditEntry) { e.Author = "ben" }),
		newAudit(3, func(e *operate.AuditEntry) {
			*e = operate.AuditEntry{At: e.At, Act: "putLimit", Author: "ben", Target: "x", Outcome: operate.AuditDone}
		}), newAudit(4)}
	s.save(&kernel.Changes{Audit: all[:3]})
	s.save(&kernel.Changes{Audit: all[3:]})
	for _, c := range []struct {
		filter kernel.AuditFilter
		want   []int
	}{
		{kernel.AuditFilter{}, []int{3, 2, 1, 0}},
		{kernel.AuditFilter{Limit: 2}, []int{3, 2}},
		{kernel.AuditFilter{Author: "ben"}, []int{2, 1}},
		{kernel.AuditFilter{Act: "undo"}, []int{3, 1, 0}},
		{kernel.AuditFilter{Act: "undo", Author: "ben"}, []int{1}},
		{kernel.AuditFilter{Job: id(4)}, []int{3}},
		{kernel.AuditFilter{Job: id(4), Author: "ben"}, nil},
		{kernel.AuditFilter{Since: at(2 * time.Second)}, []int{3, 2, 1}},
		{kernel.AuditFilter{Since: at(3 * time.Second), Act: "undo"}, []int{3}},
	} {
		var want []operate.AuditEntry
		for _, i := range c.want {
			want = append(want, all[i])
		}
		s.equal(fmt.Sprintf("%+v", c.filter), s.audit(c.filter), want)
	}
	page, err := s.store.AuditLog(ctx, kernel.AuditFilter{Limit: 2})
	s.must(err)
	s.equal("the next page", s.audit(kernel.AuditFilter{Before: page[1].ID}), []operate.AuditEntry{all[1], all[0]})
}

func accessForgotten(s *suite) {
	expires := func(after time.Duration) func(*kernel.Credential) {
		return func(c *kernel.Credential) { c.ExpiresAt, c.UsedAt = at(after), at(time.Hour) }
	}
	unused := func(c *kernel.Credential) { c.ExpiresAt, c.UsedAt = at(time.Hour), at(time.Minute) }
	s.addCredentials(newCredential(1, expires(time.Minute)), newCredential(2, isSession(""), expires(time.Minute)), newCredential(3, isSession(""), expires(3*time.Minute)),
		newCredential(4, isSession(""), unused), newCredential(5, isSession(""), expires(time.Second)))
	s.save(&kernel.Changes{Audit: []operate.AuditEntry{newAudit(1), newAudit(2), newAudit(3)}})
	forget := func(max, want int) {
		s.Helper()
		n, err := s.store.ForgetAccess(ctx, at(2*time.Minute), at(2*time.Minute), at(3*time.Second), max)
		s.must(err)
		s.equal(fmt.Sprint("at most ", max, " of each"), n, want)
	}
	forget(0, 0)
	forget(1, 2)
	forget(9, 3)
	forget(9, 0)
	for n, left := range map[int]bool{1: true, 2: false, 3: true, 4: false, 5: false} {
		s.equal(fmt.Sprint("credential ", n, " is left"), s.credential(n) != nil, left)
	}
	s.equal("the audit log", s.audit(kernel.AuditFilter{}), []operate.AuditEntry{newAudit(3)})
	s.save(&kernel.Changes{Audit: []operate.AuditEntry{newAudit(4)}})
	s.equal("the audit log goes on", s.audit(kernel.AuditFilter{}), []operate.AuditEntry{newAudit(4), newAudit(3)})
}
