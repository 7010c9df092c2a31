//go:build deps

// Package deps pins modules until the code that needs them is in; it is deleted then.
package deps

import (
 _ "github.com/spf13/cobra"
 _ "github.com/danielgtaylor/huma/v2"
 _ "github.com/danielgtaylor/huma/v2/adapters/humago"
 _ "github.com/jackc/pgx/v5/pgxpool"
 _ "github.com/jackc/pgx/v5/stdlib"
 _ "modernc.org/sqlite"
 _ "github.com/expr-lang/expr"
 _ "github.com/goccy/go-yaml"
 _ "github.com/google/uuid"
 _ "github.com/prometheus/client_golang/prometheus/promhttp"
 _ "golang.org/x/term"
 _ "golang.org/x/sync/errgroup"
 _ "github.com/failsafe-go/failsafe-go"
 _ "pgregory.net/rapid"
 _ "github.com/google/go-cmp/cmp"
 _ "go.uber.org/goleak"
 _ "github.com/rogpeppe/go-internal/testscript"
)
