# Perdure's chores. `make` shows them.
SHELL := bash
GO    ?= go
export CGO_ENABLED ?= 0
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.DEFAULT_GOAL := help
.PHONY: help build demo test test-short lint bench bench-quick bench-micro fmt clean

help: ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: ## the static binary, bin/perdure
	$(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/perdure ./cmd/perdure

demo: build ## 200 orders through the shop, killed in the middle, audited from the ledgers
	$(GO) build -trimpath -o bin/shop ./examples/shop
	bin/shop demo --perdure bin/perdure

test: ## everything, on SQLite and PostgreSQL, with the race detector; installs what it needs
	scripts/setup
	$(GO) vet ./...
	CGO_ENABLED=1 PERDURE_TEST_REQUIRE_POSTGRES=1 PERDURE_TEST_REQUIRE_NGINX=1 $(GO) test -race -timeout 30m ./...
	PERDURE_TEST_REQUIRE_POSTGRES=1 $(GO) test -count=1 -run Budget ./node

test-short: ## what needs no database server and no minute
	$(GO) test -short ./...

lint: ## golangci-lint with the rules of .golangci.yaml
	$(GO) tool -modfile=tools/go.mod golangci-lint run ./...

bench: ## Perdure, its peers and the floor beneath them, in one interleaved run (hours); bench-quick in minutes
	scripts/setup bench
	cd bench && $(GO) run . --out ../bin/bench

bench-quick: ## the same in five minutes: River and DBOS alone, fewer rounds
	scripts/setup bench
	cd bench && $(GO) run . quick --out ../bin/bench

bench-micro: ## what the hot paths cost, with allocations
	$(GO) test -run '^$$' -bench . -benchmem . ./definition ./store/...

fmt: ## gofmt
	gofmt -w $$(git ls-files '*.go')

clean: ## what the other targets left
	rm -rf bin
