package rest

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/access"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/memory"
)

// BenchmarkCalls measures a call without the service.
func BenchmarkCalls(b *testing.B) {
	reports := make([]string, 100)
	for i := range reports {
		reports[i] = fmt.Sprintf(`{"job":"%s","step":"charge","run":%d,"outcome":"done","output":{"id":"ch-9","amount":4200}}`, someJob, i+1)
	}
	jobs := make([]string, perdure.MaxBatch)
	for i := range jobs {
		jobs[i] = fmt.Sprintf(`{"key":"order-%d","input":{"amount":4200,"sku":"tea-12"}}`, i)
	}
	for name, call := range map[string][2]string{
		"claim":   {"/v1/agents/payments/claim", claimExample},
		"report":  {"/v1/reports", `{"holder":"h","reports":[` + reports[0] + `]}`},
		"reports": {"/v1/reports", `{"holder":"h","reports":[` + strings.Join(reports, ",") + `]}`},
		"beat":    {"/v1/heartbeats", heartbeatsExample},
		"submit":  {"/v1/jobs", definitionExample},
		"batch":   {"/v1/batches/submit", `{"definition":` + definitionExample + `,"jobs":[` + strings.Join(jobs, ",") + `]}`},
	} {
		b.Run(name, func(b *testing.B) {
			h := handler(resttest.Full())
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("POST", "http://localhost"+call[0], strings.NewReader(call[1]))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code/100 != 2 {
					b.Fatal(w.Body)
				}
			}
		})
	}
}

// BenchmarkClaimWithToken compares a claim without access control with one whose token is checked.
// docs/adr/0033-access.md allows the check 2 µs.
func BenchmarkClaimWithToken(b *testing.B) {
	store := memory.New()
	s := access.NewSecret()
	if err := store.Update(b.Context(), func(tx kernel.Tx) error {
		return tx.AddCredential(&kernel.Credential{ID: s.ID, Kind: kernel.TokenCredential, Hash: s.Hash, Name: "a", Rights: operate.Rights{Role: operate.Agent}, UsedAt: time.Now()})
	}); err != nil {
		b.Fatal(err)
	}
	registry := access.New(access.Config{Store: store, StoreTime: time.Now})
	for name, cfg := range map[string]Config{"none": {}, "checked": {Access: registry, Tokens: TokensAlways}} {
		b.Run(name, func(b *testing.B) {
			cfg.Service, cfg.Log = resttest.Full(), quiet
			h := New(cfg)
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("POST", "http://localhost/v1/agents/payments/claim", strings.NewReader(claimExample))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Authorization", "Bearer "+s.Text)
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code/100 != 2 {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
