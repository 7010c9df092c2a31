package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/memory"
)

// clock is an env whose time a test sets.
type clock struct {
	env.Real
	now     atomic.Int64
	delayed atomic.Int64  // answers to wrong tokens
	hold    chan struct{} // nil: they do not wait
}

// Wait counts delays of answers to wrong tokens. The other waits follow the real clock.
func (c *clock) Wait(ctx context.Context, d time.Duration, ch <-chan struct{}) env.Waited {
	if d != wrongDelay {
		return c.Real.Wait(ctx, d, ch)
	}
	c.delayed.Add(1)
	if c.hold != nil {
		<-c.hold
	}
	return env.Late
}

var epoch = time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)

func (c *clock) Now() time.Time { return epoch.Add(time.Duration(c.now.Load())) }

// WithDeadline follows the real clock: the set time does not pass.
func (c *clock) WithDeadline(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, at.Sub(c.Now()))
}

func (c *clock) advance(d time.Duration) { c.now.Add(int64(d)) }

// counted is a store whose reads of credentials are counted, and can fail.
type counted struct {
	kernel.Store
	reads  atomic.Int64
	failed atomic.Pointer[error]
	slow   chan struct{} // nil: reads do not wait
}

func (s *counted) FindCredentials(ctx context.Context, ids []string) ([]*kernel.Credential, error) {
	s.reads.Add(1)
	if s.slow != nil {
		<-s.slow
	}
	if err := s.failed.Load(); err != nil && *err != nil {
		return nil, *err
	}
	return s.Store.FindCredentials(ctx, ids)
}

func (s *counted) HasAdminToken(ctx context.Context) (bool, error) {
	if err := s.failed.Load(); err != nil && *err != nil {
		return false, *err
	}
	return s.Store.HasAdminToken(ctx)
}

func (s *counted) fail(err error) { s.failed.Store(&err) }

// writer is the part of the scheduler that the registry needs, without its checks.
type writer struct {
	store kernel.Store
	clock *clock

	mu      sync.Mutex
	entries []operate.AuditEntry
}

func (w *writer) AddCredential(ctx context.Context, c *kernel.Credential, _ int, set func(*kernel.Credential, time.Time), _ operate.AuditEntry) error {
	set(c, w.clock.Now())
	return w.store.Update(ctx, func(tx kernel.Tx) error { return tx.AddCredential(c) })
}

func (w *writer) DeleteCredential(ctx context.Context, id string, _ kernel.CredentialKind, _ operate.AuditEntry) error {
	return w.store.Update(ctx, func(tx kernel.Tx) error { return tx.DeleteCredential(id) })
}

func (w *writer) AddAudit(_ context.Context, entries []operate.AuditEntry) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries = append(w.entries, entries...)
	return nil
}

type world struct {
	*testing.T
	*Registry
	store  *counted
	writer *writer
	clock  *clock
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := &clock{}
	store := &counted{Store: memory.New()}
	w := &writer{store: store, clock: c}
	return &world{T: t, store: store, writer: w, clock: c, Registry: New(Config{Store: store, Scheduler: w, StoreTime: c.Now, Env: c})}
}

// add stores a credential, and returns its text.
func (w *world) add(edits ...func(*kernel.Credential)) string {
	w.Helper()
	s := NewSecret()
	c := &kernel.Credential{ID: s.ID, Kind: kernel.TokenCredential, Hash: s.Hash, Name: "ci", Rights: operate.Rights{Role: operate.Viewer}, CreatedAt: w.clock.Now(), UsedAt: w.clock.Now()}
	for _, edit := range edits {
		edit(c)
	}
	if err := w.store.Update(w.Context(), func(tx kernel.Tx) error { return tx.AddCredential(c) }); err != nil {
		w.Fatal(err)
	}
	return s.Text
}

func (w *world) identify(text string) error {
	_, err := w.Identify(w.Context(), text, kernel.TokenCredential, "192.0.2.1")
	return err
}

func (w *world) expect(what, text string, code perdure.Code) {
	w.Helper()
	if err := w.identify(text); perdure.CodeOf(err) != code {
		w.Errorf("%s: %v", what, err)
	}
}

// A token has the documented form, its checksum finds a changed character, and no two are equal.
func TestTokensHaveAForm(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		s := NewSecret()
		if id, ok := idOf(s.Text); !ok || id != s.ID || len(s.Text) != 60 || !strings.HasPrefix(s.Text, "pdr_") || s.Hash != hash(s.Text) || seen[s.Text] {
			t.Fatalf("%q", s.Text)
		}
		seen[s.Text] = true
	}
	s := NewSecret()
	for i := range s.Text {
		other := byte('x')
		if s.Text[i] == 'x' {
			other = 'y'
		}
		if _, ok := idOf(s.Text[:i] + string(other) + s.Text[i+1:]); ok {
			t.Errorf("a changed character at %d is not found", i)
		}
	}
	for _, text := range []string{"", "pdr_", s.Text + "x", s.Text[:59], strings.Repeat("x", 60), strings.Repeat("ü", 30)} {
		if _, ok := idOf(text); ok {
			t.Errorf("%q is a token", text)
		}
	}
	if again := NewSecretOf(s.ID); again.ID != s.ID || again.Text == s.Text {
		t.Errorf("another secret: %+v", again)
	}
}

// A credential is read once in 4 seconds, however many callers use it, and its end is noticed then.
func TestRevokedTokenIsNoticedInTime(t *testing.T) {
	w := newWorld(t)
	text := w.add()
	var callers sync.WaitGroup
	w.expect("new", text, "")
	before := w.store.reads.Load()
	for range 50 {
		callers.Go(func() { w.expect("known", text, "") })
	}
	callers.Wait()
	if n := w.store.reads.Load() - before; n != 0 {
		t.Errorf("%d reads of a token that is known", n)
	}
	id, _ := idOf(text)
	if err := w.writer.DeleteCredential(t.Context(), id, kernel.TokenCredential, operate.AuditEntry{}); err != nil {
		t.Fatal(err)
	}
	w.clock.advance(cacheTime - 1)
	w.expect("cached", text, "")
	identity := &operate.Identity{Credential: id}
	if !w.StillValid(t.Context(), identity) {
		t.Error("a cached token is not valid any more")
	}
	w.clock.advance(1)
	for range 50 {
		callers.Go(func() {
			if err := w.identify(text); perdure.CodeOf(err) != perdure.CodeUnauthenticated && perdure.CodeOf(err) != perdure.CodeTooManyRequests {
				t.Errorf("revoked: %v", err)
			}
		})
	}
	callers.Wait()
	if w.StillValid(t.Context(), identity) {
		t.Error("a revoked token is still valid")
	}
}

func TestCredentialsEndInTime(t *testing.T) {
	w := newWorld(t)
	expiring := w.add(func(c *kernel.Credential) { c.ExpiresAt = epoch.Add(time.Minute) })
	rotated := NewSecret()
	old := w.add(func(c *kernel.Credential) {
		rotated = NewSecretOf(c.ID)
		c.Previous, c.Hash, c.PreviousUntil = c.Hash, rotated.Hash, epoch.Add(time.Minute)
	})
	for what, text := range map[string]string{"before it expires": expiring, "in the overlap": old, "the new secret": rotated.Text} {
		w.expect(what, text, "")
	}
	w.clock.advance(time.Minute)
	w.expect("expired", expiring, perdure.CodeUnauthenticated)
	w.expect("after the overlap", old, perdure.CodeUnauthenticated)
	w.expect("the new secret, later", rotated.Text, "")
	w.expect("another secret of a known id", NewSecretOf(rotated.ID).Text, perdure.CodeUnauthenticated)

	again := NewSecretOf(rotated.ID)
	if err := w.store.Update(t.Context(), func(tx kernel.Tx) error {
		c, err := tx.LockCredential(rotated.ID)
		if err != nil {
			return err
		}
		c.Hash = again.Hash
		return tx.SaveCredential(c)
	}); err != nil {
		t.Fatal(err)
	}
	w.expect("a secret that is newer than the cache", again.Text, "")

	token := w.add(func(c *kernel.Credential) { c.ExpiresAt = epoch.Add(3 * time.Hour) })
	cookie, id, err := w.Login(t.Context(), token, "192.0.2.2")
	if err != nil || !id.Expires.Equal(epoch.Add(3*time.Hour)) || id.Via != operate.ViaSession {
		t.Fatalf("%+v, %v", id, err)
	}
	session := func(what string, valid bool) {
		t.Helper()
		if _, err := w.Identify(t.Context(), cookie, kernel.SessionCredential, "192.0.2.2"); (err == nil) != valid {
			t.Errorf("%s: %v", what, err)
		}
	}
	for range 2 { // a use is recorded, and extends the session
		w.clock.advance(operate.SessionIdle * 2 / 3)
		session("used in time", true)
		for began := time.Now(); ; time.Sleep(time.Millisecond) { // it is recorded beside the call
			if found, err := w.store.Store.FindCredentials(t.Context(), []string{id.Credential}); err != nil || found[0].UsedAt.Equal(w.clock.Now()) {
				break
			} else if time.Since(began) > 10*time.Second {
				t.Fatalf("the use was not recorded: %+v", found[0])
			}
		}
	}
	w.clock.advance(operate.SessionIdle)
	session("not used for an hour", false)
}

// A call that was begun with a secret that was replaced since then is no longer valid; one with the secret that replaced it,
// or in the overlap, is.
func TestReplacedSecretIsNoLongerValid(t *testing.T) {
	w := newWorld(t)
	text := w.add()
	rotate := func(overlap time.Duration) (after string) {
		t.Helper()
		id, _ := idOf(text)
		secret := NewSecretOf(id)
		if err := w.store.Update(t.Context(), func(tx kernel.Tx) error {
			c, err := tx.LockCredential(id)
			if err != nil {
				return err
			}
			c.Previous, c.PreviousUntil, c.Hash = c.Hash, w.clock.Now().Add(overlap), secret.Hash
			return tx.SaveCredential(c)
		}); err != nil {
			t.Fatal(err)
		}
		return secret.Text
	}
	began := func(text string) *operate.Identity {
		t.Helper()
		id, err := w.Identify(t.Context(), text, kernel.TokenCredential, "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	valid := func(what string, id *operate.Identity, want bool) {
		t.Helper()
		if w.StillValid(t.Context(), id) != want {
			t.Errorf("%s is valid: not %v", what, want)
		}
	}
	first := began(text)
	second := rotate(time.Minute)
	valid("the cached secret", first, true)
	w.clock.advance(cacheTime)
	valid("the previous secret in its overlap", first, true)
	valid("the new secret", began(second), true)
	overlapping := began(text)
	valid("the previous secret, used after the rotation", overlapping, true)
	w.clock.advance(time.Minute)
	valid("the previous secret after its overlap", first, false)
	valid("the previous secret after its overlap, used after the rotation", overlapping, false)
	valid("the new secret, later", began(second), true)
	leaked := began(second)
	third := rotate(0)
	w.clock.advance(cacheTime)
	valid("a secret that was replaced without an overlap", leaked, false)
	valid("its replacement", began(third), true)
}

// While the store does not answer, a token that was read in time is accepted, and others are refused as unavailable.
func TestStoreThatDoesNotAnswer(t *testing.T) {
	w := newWorld(t)
	text, other := w.add(), w.add()
	if has, err := w.HasAdmin(t.Context()); has || err != nil {
		t.Fatal(has, err)
	}
	w.expect("known", text, "")
	w.store.fail(errors.New("away"))
	w.expect("cached", text, "")
	w.expect("never read", other, perdure.CodeUnavailable)
	w.clock.advance(cacheTime)
	w.expect("read too long ago", text, perdure.CodeUnavailable)
	id, _ := idOf(text)
	if !w.StillValid(t.Context(), &operate.Identity{Credential: id}) {
		t.Error("a call that waits ends because the store does not answer")
	}
	if has, err := w.HasAdmin(t.Context()); has || err != nil {
		t.Errorf("HasAdmin: %v, %v", has, err)
	}
	w.store.fail(nil)
	w.expect("again", text, "")
	w.expect("again", other, "")
}

// Wrong tokens cost few reads, and those of other addresses are not affected.
func TestWrongTokensCostFewReads(t *testing.T) {
	w := newWorld(t)
	good := w.add()
	w.expect("good", good, "")
	before := w.store.reads.Load()
	for i := range 1000 {
		want := perdure.CodeUnauthenticated
		if i >= MaxFailures {
			want = perdure.CodeTooManyRequests
		}
		w.expect(fmt.Sprint("wrong ", i), NewSecret().Text, want)
	}
	if n := w.store.reads.Load() - before; n > MaxFailures+MaxReads {
		t.Errorf("%d reads", n)
	}
	w.expect("random text", "x", perdure.CodeTooManyRequests)
	w.expect("good, from the same address", good, "")
	if _, err := w.Identify(t.Context(), NewSecret().Text, kernel.TokenCredential, "192.0.2.9"); perdure.CodeOf(err) != perdure.CodeUnauthenticated {
		t.Errorf("of another address: %v", err)
	}
	w.clock.advance(failureTime)
	w.expect("a minute later", NewSecret().Text, perdure.CodeUnauthenticated)
}

// An address with many wrong tokens does not lock valid ones out that the node has not read yet, nor logins with them. An
// agent that repeats a wrong token does not use up their reads.
func TestValidTokensOfAnAddressWithFailures(t *testing.T) {
	w := newWorld(t)
	stale, session := NewSecret(), NewSecret()
	w.add(func(c *kernel.Credential) {
		c.ID, c.Hash, c.Kind, c.ExpiresAt = session.ID, session.Hash, kernel.SessionCredential, epoch.Add(time.Hour)
	})
	for range 1000 {
		_ = w.identify(stale.Text)
	}
	w.expect("repeated", stale.Text, perdure.CodeTooManyRequests)
	if n := w.store.reads.Load(); n != MaxFailures {
		t.Errorf("%d reads of one wrong token", n)
	}
	w.expect("valid", w.add(), "")
	w.expect("another valid one", w.add(), "")
	if _, _, err := w.Login(t.Context(), w.add(), "192.0.2.1"); err != nil {
		t.Errorf("login: %v", err)
	}
	if _, _, err := w.Login(t.Context(), NewSecret().Text, "192.0.2.1"); perdure.CodeOf(err) != perdure.CodeTooManyRequests {
		t.Errorf("login with a wrong token: %v", err)
	}
	if _, err := w.Identify(t.Context(), session.Text, kernel.SessionCredential, "192.0.2.1"); err != nil {
		t.Errorf("session: %v", err)
	}
	for second := range 3 {
		before := w.store.reads.Load()
		for range 1000 {
			w.expect("wrong", NewSecret().Text, perdure.CodeTooManyRequests)
		}
		if n := w.store.reads.Load() - before; n > MaxReads {
			t.Errorf("%d reads in second %d", n, second)
		}
		w.clock.advance(readsTime)
		w.expect("valid, in the next second", w.add(), "")
	}
	for i := range 3 * maxWrong {
		w.failures.remember(&[32]byte{byte(i), byte(i >> 8)})
	}
	if n := len(w.failures.wrong); n > maxWrong {
		t.Errorf("%d wrong tokens are remembered", n)
	}
}

// One read of unknown tokens is in progress, however many callers there are, and the next one is for all who wait for it.
// Known tokens do not wait for them.
func TestUnknownTokensDoNotOccupyTheStore(t *testing.T) {
	w := newWorld(t)
	good, unread := w.add(), w.add()
	w.expect("good", good, "")
	w.store.slow = make(chan struct{})
	var callers sync.WaitGroup
	call := func(i int, text string, want perdure.Code) {
		callers.Go(func() {
			if _, err := w.Identify(t.Context(), text, kernel.TokenCredential, fmt.Sprintf("192.0.2.%d", i)); perdure.CodeOf(err) != want {
				t.Errorf("caller %d: %v", i, err)
			}
		})
	}
	call(0, NewSecret().Text, perdure.CodeUnauthenticated)
	for w.store.reads.Load() < 1+1 {
		time.Sleep(time.Millisecond)
	}
	for i := range 20 {
		call(1+i, NewSecret().Text, perdure.CodeUnauthenticated)
	}
	for i := range 10 {
		call(50+i, unread, "")
	}
	waiting := func() (n int) {
		w.loader.mu.Lock()
		defer w.loader.mu.Unlock()
		for _, l := range w.loader.waiting {
			n += len(l.ids)
		}
		return n
	}
	for began := time.Now(); waiting() < 21 && time.Since(began) < 10*time.Second; {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(4 * maxPause)
	if n := w.store.reads.Load() - 1; n != 1 {
		t.Errorf("%d reads in progress", n)
	}
	w.expect("good", good, "")
	close(w.store.slow)
	callers.Wait()
	if n := w.store.reads.Load() - 1; n != 2 {
		t.Errorf("%d reads for 31 callers", n)
	}
}

// A pause follows each read of unknown tokens, and each has a bounded number of them. A caller who no longer waits does
// not end the read for others.
func TestReadsOfUnknownTokensAreBounded(t *testing.T) {
	var mu sync.Mutex
	var sizes []int
	var begins sync.Map                // times at which reads began
	started := make(chan struct{}, 10) // a value for each read
	l := &loader{env: env.Real{}, read: func(ctx context.Context, ids []string) (map[string]*identified, error) {
		started <- struct{}{}
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, len(ids))
		time.Sleep(maxPause / loadPause)
		return nil, ctx.Err()
	}}
	mu.Lock() // the first read is in progress
	var callers sync.WaitGroup
	gone, leave := context.WithCancel(t.Context())
	load := func(ctx context.Context, id string) {
		callers.Go(func() {
			c, began, err := l.load(ctx, id)
			if ctx == gone {
				return
			}
			if c != nil || err != nil {
				t.Errorf("%s: %v, %v", id, c, err)
			}
			begins.Store(began, true)
		})
	}
	load(gone, "first")
	<-started
	load(gone, "another")
	for i := range 2 * maxLoaded {
		load(t.Context(), fmt.Sprint(i))
	}
	for reads := 0; reads < 3; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		reads = len(l.waiting)
		l.mu.Unlock()
	}
	leave()
	mu.Unlock()
	callers.Wait()
	if want := []int{1, maxLoaded, maxLoaded, 1}; !slices.Equal(sizes, want) {
		t.Errorf("reads of %d tokens", sizes)
	}
	var times []time.Time
	begins.Range(func(began, _ any) bool { times = append(times, began.(time.Time)); return true })
	slices.SortFunc(times, time.Time.Compare)
	for i, began := range times[1:] {
		if d := began.Sub(times[i]); d < maxPause {
			t.Errorf("read %d began %s after the one before", i, d)
		}
	}
	if len(times) < 2 {
		t.Errorf("%d reads", len(times))
	}
}

func TestFailuresAreCountedByNetwork(t *testing.T) {
	c := &clock{}
	f := newFailures(c)
	for i := range MaxFailures {
		f.add(fmt.Sprintf("2001:db8::%d", i+1))
	}
	for address, allowed := range map[string]bool{"2001:db8::ffff": false, "2001:db8:0:1::1": true, "192.0.2.1": true, "": true} {
		if f.allow(address) != allowed {
			t.Errorf("%s: allowed is not %v", address, allowed)
		}
	}
	for i := range 2 * maxAddresses {
		f.add(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255))
	}
	if len(f.count) > maxAddresses+1 {
		t.Errorf("%d addresses are counted", len(f.count))
	}
	if f.allow("10.9.9.9") {
		t.Error("addresses beyond the bound are not counted together")
	}
	c.advance(failureTime)
	f.add("10.9.9.9")
	if len(f.count) > 2 || !f.allow("10.9.9.8") {
		t.Errorf("%d addresses are counted a minute later", len(f.count))
	}
}

// The first 100 refused requests of a second are recorded, and the others as a number.
func TestRefusedRequestsAreBounded(t *testing.T) {
	w := newWorld(t)
	for range MaxRefusals + 50 {
		w.Refused(operate.AuditEntry{Act: "undo", Outcome: operate.AuditRefused}, "")
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		w.writer.mu.Lock()
		entries := w.writer.entries
		w.writer.mu.Unlock()
		if len(entries) == 0 && time.Since(began) < 20*time.Second {
			continue
		}
		if n := len(entries); n != MaxRefusals+1 || entries[n-1].Act != kernel.ActRefusals || entries[n-1].Count != 50 {
			t.Errorf("%d entries", n)
		}
		return
	}
}

// The entry of a refused act has the id of its job, if there is one. Each job is searched for once; an id is not.
func TestRefusedRequestsNameTheirJobs(t *testing.T) {
	id, id2 := perdure.JobID{1}, perdure.JobID{2}
	w, searched := newWorld(t), 0
	w.refusals.find = func(_ context.Context, ref string, max int) ([]perdure.JobID, error) {
		searched++
		switch ref {
		case "o1":
			return []perdure.JobID{id}, nil
		case "down":
			return nil, errors.New("down")
		case "job_":
			return []perdure.JobID{id, id2}, nil
		}
		return nil, nil
	}
	var refused []refusal
	for _, r := range [][2]string{{"o1", ""}, {"o1", "charge"}, {id2.String(), "charge"}, {"none", ""}, {"none", "charge"}, {"down", ""}, {"job_", ""}, {"@latest", ""}, {"", "ads-api"}} {
		refused = append(refused, refusal{operate.AuditEntry{Target: r[1]}, r[0]})
	}
	var got []string
	for _, e := range w.refusals.found(t.Context(), refused) {
		got = append(got, map[perdure.JobID]string{id: "1 ", id2: "2 "}[e.Job]+e.Target)
	}
	if want := []string{"1 ", "1 charge", "2 charge", "none", "none/charge", "down", "job_", "@latest", "ads-api"}; !slices.Equal(got, want) || searched != 4 {
		t.Errorf("%q after %d searches", got, searched)
	}
}

// The check of a token that is known is on the path of each claim and report: docs/adr/0033-access.md allows it 2 µs.
func BenchmarkIdentify(b *testing.B) {
	store := memory.New()
	r := New(Config{Store: store, Scheduler: &writer{store: store}, StoreTime: time.Now})
	s := NewSecret()
	if err := store.Update(b.Context(), func(tx kernel.Tx) error {
		return tx.AddCredential(&kernel.Credential{ID: s.ID, Kind: kernel.TokenCredential, Hash: s.Hash, Name: "ci", Rights: operate.Rights{Role: operate.Viewer}, UsedAt: time.Now()})
	}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := r.Identify(b.Context(), s.Text, kernel.TokenCredential, "192.0.2.1"); err != nil {
				b.Error(err)
			}
		}
	})
}

// The answers to wrong tokens are delayed, but not more than maxDelayed at a time, and those to other callers never.
func TestWrongTokensAreDelayed(t *testing.T) {
	w := newWorld(t)
	valid := w.add()
	w.clock.hold = make(chan struct{})
	var all sync.WaitGroup
	for range maxDelayed {
		all.Go(func() { _, _ = w.Identify(w.Context(), NewSecret().Text, kernel.TokenCredential, "") })
	}
	for w.clock.delayed.Load() < maxDelayed {
		time.Sleep(time.Millisecond)
	}
	if _, err := w.Identify(t.Context(), valid, kernel.TokenCredential, ""); err != nil {
		t.Error(err)
	}
	if _, err := w.Identify(t.Context(), NewSecret().Text, kernel.TokenCredential, ""); err == nil { // it does not wait
		t.Error("a wrong token was accepted")
	}
	if n := w.clock.delayed.Load(); n != maxDelayed {
		t.Errorf("%d answers were delayed", n)
	}
	close(w.clock.hold)
	all.Wait()
	_, _ = w.Identify(t.Context(), NewSecret().Text, kernel.TokenCredential, "")
	if n := w.clock.delayed.Load(); n != maxDelayed+1 {
		t.Errorf("%d answers were delayed, after the others had ended", n)
	}
	if _, err := w.Identify(t.Context(), NewSecret().Text, kernel.SessionCredential, ""); err == nil || w.clock.delayed.Load() != maxDelayed+1 {
		t.Error("the answer to a session that has ended was delayed")
	}
}
