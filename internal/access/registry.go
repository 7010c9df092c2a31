package access

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// Scheduler is what the registry needs of package scheduler.
type Scheduler interface {
	AddCredential(ctx context.Context, c *kernel.Credential, max int, set func(c *kernel.Credential, now time.Time), audit operate.AuditEntry) error
	DeleteCredential(ctx context.Context, id string, kind kernel.CredentialKind, audit operate.AuditEntry) error
	AddAudit(ctx context.Context, entries []operate.AuditEntry) error
}

// Config configures a Registry. Store, Scheduler and StoreTime are required.
type Config struct {
	Store     kernel.AccessReader
	Scheduler Scheduler
	StoreTime func() time.Time                                                        // the store's clock, as nearly as this process knows it
	FindJobs  func(ctx context.Context, ref string, max int) ([]perdure.JobID, error) // of a kernel.Store; nil: jobs of refused requests are not found
	Failed    func()                                                                  // called for each wrong token; nil: nothing is called
	Log       *slog.Logger                                                            // nil: nothing is logged
	Env       env.Env                                                                 // nil: env.Real
}

// Registry identifies callers. It is safe for concurrent use.
type Registry struct {
	Config
	failures *failures
	refusals *refusals
	loader   *loader

	mu    sync.RWMutex
	cache map[string]*cached[*identified] // credentials that existed when they were read last, by id

	hasAdmin cached[bool] // whether the store has an admin token

	delayed atomic.Int64 // callers with wrong tokens that wait for their answers
}

// identified is a credential as it was read, with its identity.
type identified struct {
	kernel.Credential
	identity operate.Identity // of a caller with the secret
	previous operate.Identity // of a caller with the secret before the latest rotation
	touched  atomic.Bool      // a use was recorded since it was read
}

const (
	// cacheTime is below operate.CredentialCached because a call that begins at its end takes some time.
	cacheTime = operate.CredentialCached - time.Second
	readTime  = 5 * time.Second
	// wrongDelay is how long the answer to a wrong token takes. So those who try many tokens, one after the other on each
	// connection, cannot take the processors from other callers.
	wrongDelay = 250 * time.Millisecond
	// maxDelayed bounds the answers that are delayed at a time. Further ones are not delayed.
	maxDelayed = 1000
	// maxCached bounds the credentials in memory: as many as a store has.
	maxCached = operate.MaxTokens + operate.MaxSessions
)

// New returns a registry.
func New(cfg Config) *Registry {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Env == nil {
		cfg.Env = env.Real{}
	}
	if cfg.Failed == nil {
		cfg.Failed = func() {}
	}
	r := &Registry{Config: cfg, failures: newFailures(cfg.Env), refusals: newRefusals(cfg), cache: map[string]*cached[*identified]{}}
	r.loader = &loader{env: cfg.Env, read: r.read}
	return r
}

var (
	errWrong   = refuse(perdure.CodeUnauthenticated, "the token is not valid", "it may be mistyped, expired or revoked; an admin can create another one with: perdure tokens create")
	errSession = refuse(perdure.CodeUnauthenticated, "the session has ended", "log in again")
	errTooMany = refuse(perdure.CodeTooManyRequests, "too many wrong tokens from this address", "wait a minute")
)

func refuse(code perdure.Code, message, hint string) error {
	return &perdure.Error{Code: code, Message: message, Hint: hint}
}

// Identify returns the identity of a caller that has sent the text of a token, or of the cookie of a session. The refusal
// of a wrong one does not reveal whether the id exists. The caller must not change the identity. Only a call that reads the
// store, or waits for a read, takes time: at most waitTime.
func (r *Registry) Identify(ctx context.Context, text string, kind kernel.CredentialKind, address string) (*operate.Identity, error) {
	id, ok := idOf(text)
	if !ok {
		return nil, r.wrong(ctx, kind, address)
	}
	now := r.Env.Now()
	c, known, err := r.cached(ctx, id, now)
	if err != nil {
		return nil, err
	}
	storeTime := r.StoreTime()
	sum := hash(text)
	if !known || c != nil && !c.hasSecret(&sum, storeTime) { // the token may have been rotated since it was cached
		if c, err = r.compare(ctx, id, &sum, kind, address); err != nil {
			return nil, err
		}
	}
	if c == nil || c.Kind != kind || !c.ValidAt(storeTime) || !c.hasSecret(&sum, storeTime) {
		return nil, r.wrong(ctx, kind, address)
	}
	r.touch(ctx, c, storeTime)
	if sum != c.Hash {
		return &c.previous, nil
	}
	return &c.identity, nil
}

// compare loads the credential of a token that is not cached. Tokens of an address with many failures are loaded, too,
// because one of them may be valid; but few of them.
func (r *Registry) compare(ctx context.Context, id string, sum *[32]byte, kind kernel.CredentialKind, address string) (*identified, error) {
	switch r.failures.check(address, sum) {
	case wrongAgain:
		return nil, r.wrong(ctx, kind, address)
	case readLater:
		r.Failed()
		r.delay(ctx)
		return nil, errTooMany
	}
	c, err := r.load(ctx, id)
	if err == nil && (c == nil || !c.hasSecret(sum, r.StoreTime())) {
		r.failures.remember(sum)
	}
	return c, err
}

func (c *identified) hasSecret(sum *[32]byte, now time.Time) bool {
	current, previous := subtle.ConstantTimeCompare(sum[:], c.Hash[:]) == 1, subtle.ConstantTimeCompare(sum[:], c.Previous[:]) == 1
	return current || previous && now.Before(c.PreviousUntil)
}

// wrong counts a wrong token, and returns the refusal. A wrong session is not counted: most likely it has expired in a
// browser.
func (r *Registry) wrong(ctx context.Context, kind kernel.CredentialKind, address string) error {
	r.Failed()
	if kind == kernel.SessionCredential {
		return errSession
	}
	r.delay(ctx)
	if !r.failures.add(address) {
		return errTooMany
	}
	return errWrong
}

// delay delays the answer to a wrong token.
func (r *Registry) delay(ctx context.Context) {
	defer r.delayed.Add(-1)
	if r.delayed.Add(1) <= maxDelayed {
		env.Sleep(r.Env, ctx, wrongDelay)
	}
}

// StillValid reports whether an identity that was returned before is still valid: whether its credential is, and still has
// the secret of the caller. It is true if the store does not answer.
func (r *Registry) StillValid(ctx context.Context, id *operate.Identity) bool {
	if id.Credential == "" {
		return true
	}
	now := r.Env.Now()
	c, known, err := r.cached(ctx, id.Credential, now)
	replaced := func() bool {
		return c != nil && id.Secret != [32]byte{} && !c.hasSecret(&id.Secret, r.StoreTime())
	}
	if err == nil && (!known || replaced()) { // as in Identify
		c, err = r.load(ctx, id.Credential)
	}
	return err != nil || c != nil && !replaced() && c.ValidAt(r.StoreTime())
}

// HasAdmin reports whether the store has an admin token. If the store does not answer, HasAdmin returns
// what it read last.
func (r *Registry) HasAdmin(ctx context.Context) (bool, error) {
	has, err := r.hasAdmin.get(ctx, r.Env, r.Env.Now(), func(ctx context.Context) (bool, error) {
		ctx, cancel := env.WithTimeout(r.Env, ctx, readTime)
		defer cancel()
		return r.Store.HasAdminToken(ctx)
	})
	if before := r.hasAdmin.latest.Load(); err != nil && before != nil {
		return before.value, nil
	}
	return has, unavailable(err)
}

// cached returns a credential as it was read within cacheTime, and nil if it was deleted since it was cached. known is
// false if it is not cached.
func (r *Registry) cached(ctx context.Context, id string, now time.Time) (c *identified, known bool, err error) {
	r.mu.RLock()
	entry := r.cache[id]
	r.mu.RUnlock()
	if entry == nil {
		return nil, false, nil
	}
	c, err = entry.get(ctx, r.Env, now, func(ctx context.Context) (*identified, error) {
		found, err := r.read(ctx, []string{id})
		return found[id], err
	})
	if err == nil && c == nil {
		r.mu.Lock()
		delete(r.cache, id)
		r.mu.Unlock()
	}
	return c, true, unavailable(err)
}

// load reads a credential that is not cached, or has changed since.
func (r *Registry) load(ctx context.Context, id string) (*identified, error) {
	c, at, err := r.loader.load(ctx, id)
	if err != nil || c == nil {
		return nil, unavailable(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.cache) >= maxCached { // it has entries of credentials that were deleted
		clear(r.cache)
	}
	if r.cache[id] == nil {
		r.cache[id] = &cached[*identified]{}
	}
	r.cache[id].latest.Store(&read[*identified]{c, at})
	return c, nil
}

// read reads credentials. The result has those that exist, by id.
func (r *Registry) read(ctx context.Context, ids []string) (map[string]*identified, error) {
	ctx, cancel := env.WithTimeout(r.Env, ctx, readTime)
	defer cancel()
	list, err := r.Store.FindCredentials(ctx, ids)
	if err != nil {
		return nil, err
	}
	found := make(map[string]*identified, len(list))
	for _, c := range list {
		via := operate.ViaToken
		if c.Kind == kernel.SessionCredential {
			via = operate.ViaSession
		}
		current := operate.Identity{Name: c.Name, Rights: c.Rights, Via: via, Expires: c.ExpiresAt, Credential: c.ID, Secret: c.Hash}
		previous := current
		previous.Secret = c.Previous
		found[c.ID] = &identified{Credential: *c, identity: current, previous: previous}
	}
	return found, nil
}

// touch records the use of a credential, if the last recorded use is old.
func (r *Registry) touch(ctx context.Context, c *identified, now time.Time) {
	if now.Sub(c.UsedAt) < c.TouchAfter() || c.touched.Swap(true) {
		return
	}
	id := c.ID
	r.Env.Go(func() {
		ctx, cancel := env.WithTimeout(r.Env, context.WithoutCancel(ctx), readTime)
		defer cancel()
		if err := r.Store.TouchCredential(ctx, id, now); err != nil {
			r.Log.DebugContext(ctx, "the use of a credential was not recorded", "credential", id, "error", err)
		}
	})
}

func unavailable(err error) error {
	if err == nil || perdure.CodeOf(err) != "" {
		return err
	}
	return &perdure.Error{Code: perdure.CodeUnavailable, Message: "the store does not answer: " + err.Error(), Hint: "try again later"}
}

// cached is a value that is read again when it is older than cacheTime. One caller reads for all.
type cached[T any] struct {
	reading sync.Mutex
	latest  atomic.Pointer[read[T]]
}

type read[T any] struct {
	value T
	at    time.Time // before it was read
}

func (c *cached[T]) get(ctx context.Context, e env.Env, now time.Time, fetch func(context.Context) (T, error)) (T, error) {
	if l := c.latest.Load(); l != nil && now.Sub(l.at) < cacheTime {
		return l.value, nil
	}
	ctx, cancel := env.WithTimeout(e, ctx, waitTime)
	defer cancel()
	c.reading.Lock()
	defer c.reading.Unlock()
	if l := c.latest.Load(); l != nil && now.Sub(l.at) < cacheTime {
		return l.value, nil
	}
	v, err := fetch(ctx)
	if err == nil {
		c.latest.Store(&read[T]{v, now})
	}
	return v, err
}
