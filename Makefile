# Perdure's chores. `make` shows them.
SHELL := bash
GO    ?= go
export CGO_ENABLED ?= 0
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.DEFAULT_GOAL := help
.PHONY: help build brokers console demo demo-console test test-short sim sim-campaign without mutants crashes chaos failover grid soak test-console test-access test-bulk test-fair test-rates test-schedules test-children images faults lint pictures bench bench-quick bench-micro fmt clean

help: ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: console-if-npm ## the static binary, bin/perdure, with the console if npm is installed
	$(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/perdure ./cmd/perdure

# Node older than 20 cannot build it: scripts/setup installs one in .cache/node.
console: ## the web console, console/dist, which the next build of the binary contains (needs npm)
	scripts/console

.PHONY: console-if-npm
console-if-npm:
	@scripts/console --optional

demo: build ## 200 orders through the shop, killed in the middle, audited from the ledgers
	$(GO) build -trimpath -o bin/shop ./examples/shop
	bin/shop demo --perdure bin/perdure

demo-console: build ## the demo, and then a console with parked, undone and running jobs, until Ctrl-C
	$(GO) build -trimpath -o bin/shop ./examples/shop
	bin/shop demo --perdure bin/perdure --stay

# One that fails is run once more when the others are over, and the summary tells of both: on a machine that
# stands still for seconds it may be the clock's fault. A data race is final.
# (`go tool` would end with 0 if gotestsum was killed, for want of memory for example; `go run` does not.)
GOTESTSUM = GORACE=atexit_sleep_ms=0 PERDURE_TEST_REQUIRE_POSTGRES=1 PERDURE_TEST_REQUIRE_PGBOUNCER=1 PERDURE_TEST_REQUIRE_NGINX=1 \
	PERDURE_TEST_REQUIRE_SPIN=1 PERDURE_TEST_REQUIRE_PYTHON=1 PERDURE_TEST_REQUIRE_NODE=1 PERDURE_TEST_REQUIRE_CHROMIUM=1 PERDURE_TEST_REQUIRE_PROMTOOL=1 \
	$(GO) run -modfile=tools/go.mod gotest.tools/gotestsum --rerun-fails=1 --rerun-fails-max-failures=20 --rerun-fails-abort-on-data-race
# SQLite itself is C, translated to Go. With the race detector it would take several times as long.
SQLITE_WITHOUT_RACE = '-gcflags=modernc.org/...=-race=false -d=checkptr=0'
# Packages that are tested without the race detector: they have no goroutines that could race, or play them one at a time,
# or start the released program, which is built without it.
PACKAGES_WITHOUT_RACE = \
	./cmd/perdure \
	./cmd/perdure-sim \
	./definition/internal/... \
	./deploy \
	./docs/... \
	./e2e/... \
	./examples/... \
	./internal/graph \
	./internal/jsontext \
	./internal/kernel \
	./internal/logfile \
	./internal/mutants \
	./internal/pictures \
	./internal/plain \
	./internal/sim \
	./internal/wording \
	./model \
	./sdk/... \
	./store/internal/...
# Tests of other packages that are skipped under the race detector, and their packages. They compute for long, with little
# that could race. A test of internal/racedetector compares the lists with the calls of racedetector.Skip.
WITHOUT_RACE = \
	TestAcknowledgedJobsSurvivePowerCut \
	TestAllocationBudget \
	TestAnswerToAClaimIsBounded \
	TestCacheOfDefinitionsIsBounded \
	TestCallThatEvaluatesTooMuchRefusesTheRest \
	TestCheapInputsDoNotWaitForCostlyOnes \
	TestCompilingIsBounded \
	TestConsoleInABrowser \
	TestContractInBundles \
	TestContractThroughPgBouncer \
	TestCostlyConditionsArePostponed \
	TestCostlyInputsAreDispatchedInParts \
	TestDifferential \
	TestDifferentialFromMarks \
	TestDroppedProgramsAreCompiledAgain \
	TestEveryStatementUsesAnIndex \
	TestExpressionsKeepFewKilobytes \
	TestGoneReceiverGetsNoMore \
	TestManyReferencesToALargeInputAreQuick \
	TestMemoryOfDefinitionsIsBounded \
	TestNotificationIsDeadAfterThreeDays \
	TestNumberOfExpressionsIsBounded \
	TestPausesOfHoldingGrow \
	TestScenariosInABrowser \
	TestSearchSkipsAFullLane \
	TestShapeSizesAreTrue \
	TestSizesAreBounded \
	TestStepThatReadsTooMuchIsRejected \
	TestStoreWithBundles \
	TestSubmissionEvaluationIsBounded \
	TestSubmissionThatEvaluatesTooMuchIsTooLarge \
	TestWALIsBounded \
	TestWideJoinsAreCompiledQuickly
WITHOUT_RACE_IN = \
	./console \
	./definition \
	./internal/scheduler \
	./internal/webhook \
	./node \
	./store/postgres \
	./store/sqlite
space := $(subst ,, )
test: ## everything, on SQLite and PostgreSQL, with the race detector; installs what it needs
	scripts/setup
	scripts/console
	$(GO) vet ./...
	cd bench && $(GO) list -m -mod=readonly all > /dev/null # else the benchmark no longer builds
	CGO_ENABLED=1 $(GOTESTSUM) --rerun-fails-run-root-test --packages="$$($(GO) list ./... | grep -vxF "$$($(GO) list $(PACKAGES_WITHOUT_RACE))")" -- -race -vet=off -timeout 30m $(SQLITE_WITHOUT_RACE)
	$(GOTESTSUM) --rerun-fails-run-root-test --packages='$(strip $(PACKAGES_WITHOUT_RACE))' -- -vet=off -timeout 30m
	$(GOTESTSUM) --packages='$(strip $(WITHOUT_RACE_IN))' -- -vet=off -timeout 30m -run '^($(subst $(space),|,$(strip $(WITHOUT_RACE))))$$'
	$(MAKE) brokers RACE=
	$(MAKE) sim SIM=1600
	$(MAKE) without ONLY=all PLAYS=100

# A module of its own: `go test ./...` of the main module does not see it.
RACE ?= -race
brokers: ## the module for NATS: bin/perdure-nats, and its tests with the race detector (half a minute)
	cd brokers/nats && $(GO) vet ./... && $(GO) build -trimpath -ldflags '-s -w' -o ../../bin/perdure-nats ./cmd/perdure-nats
	cd brokers/nats && CGO_ENABLED=1 $(GO) run -modfile=../../tools/go.mod gotest.tools/gotestsum --rerun-fails=1 --packages=./... -- $(RACE) -count=1 -timeout 10m

SIM ?= 20000
sim: ## SIM=20000 schedules of a simulated grid, each from a seed, and a part of them on SQLite and PostgreSQL (minutes)
	$(GO) build -o bin/perdure-sim ./cmd/perdure-sim
	bin/perdure-sim --schedules $(SIM) --rows
	bin/perdure-sim --schedules $$(($(SIM) / 20)) --store sqlite
	bin/perdure-sim --schedules $$(($(SIM) / 100)) --store postgres

SEED ?= 1000001
SCHEDULES ?= 1000000
sim-campaign: ## a million schedules, from SEED on (hours); the figures of docs/reliability.md
	$(GO) build -o bin/perdure-sim ./cmd/perdure-sim
	bin/perdure-sim --seed $(SEED) --schedules $(SCHEDULES) --rows
	bin/perdure-sim --seed $(SEED) --schedules 20000 --store sqlite
	bin/perdure-sim --seed $(SEED) --schedules 2000 --store postgres

ONLY  ?= implicit-rows marks pass bundles known-rows hold claim-ahead look-later
PLAYS   ?= 2000
without: ## the contract of the stores and the simulation, without each optimisation that can be switched off (minutes)
	$(GO) build -o bin/perdure-sim ./cmd/perdure-sim
	for name in $(ONLY); do export PERDURE_WITHOUT=$$name; echo "without $$name" && \
		PERDURE_TEST_REQUIRE_POSTGRES=1 $(GO) test -count=1 -run 'Test(Contract|Store|Differential)$$' ./store/postgres ./store/sqlite && \
		bin/perdure-sim --schedules $(PLAYS) && \
		bin/perdure-sim --schedules $$(($(PLAYS) / 10)) --store sqlite && \
		bin/perdure-sim --schedules $$(($(PLAYS) / 25)) --store postgres || exit 1; done

test-short: ## what needs no database server and no minute
	$(GO) test -short ./...

mutants: ## known bugs, put in one at a time, each of which the tests must notice (some minutes)
	scripts/setup
	PERDURE_TEST_REQUIRE_POSTGRES=1 $(GO) run ./internal/mutants

crashes: ## the program killed before and after each write and send (CI: each point once), and in large bulk acts (minutes)
	scripts/setup
	PERDURE_TEST_REQUIRE_POSTGRES=1 $(GO) test -count=1 -timeout 0 -v ./e2e -run 'KilledAtEachPoint|BulkActOfAKilledNode' -crashes -bulkjobs 10000

FOR ?= 5m
chaos: ## a grid of real processes under fire, for FOR=5m; as root also with full disks
	scripts/setup
	PERDURE_TEST_REQUIRE_POSTGRES=1 $(GO) test -count=1 -timeout 0 -v ./e2e/chaos -for $(FOR)

FAILOVERS ?= 50
failover: ## FAILOVERS=50 failovers of a PostgreSQL with two standbys under load; as root also with full disks
	scripts/setup
	PERDURE_TEST_REQUIRE_POSTGRES=1 $(GO) test -count=1 -timeout 0 -v ./e2e/failover -failovers $(FAILOVERS) -hands 288 -pause 1s -permits 64

HOSTS ?= 100
grid: ## the measures of hosts, as a table; HOSTS=100 hosts of 10 slots as processes: 10,000 commands of 20 s, 20,000 of 5 s, and 5,000 while hosts and nodes are killed (half an hour)
	scripts/setup
	$(GO) test -count=1 -timeout 0 -v ./e2e/grid -run Measures -measure
	$(GO) test -count=1 -timeout 0 -v ./e2e/grid -run CommandsOnHosts -hosts $(HOSTS) -commands $$((100 * $(HOSTS))) -length 20s -kills=false
	$(GO) test -count=1 -timeout 0 -v ./e2e/grid -run CommandsOnHosts -hosts $(HOSTS) -commands $$((200 * $(HOSTS))) -length 5s -kills=false
	$(GO) test -count=1 -timeout 0 -v ./e2e/grid -run CommandsOnHosts -hosts $(HOSTS) -commands $$((50 * $(HOSTS))) -length 20s -kills
	$(GO) test -count=1 -timeout 0 -v ./e2e/grid -run WorkflowOnHosts -images 100

soak: ## steady load on both stores, for FOR=20m: what grows?
	scripts/setup
	PERDURE_TEST_REQUIRE_POSTGRES=1 $(GO) test -count=1 -timeout 0 -v ./e2e -run Soak -soak $(FOR)

JOBS ?= 1000000
test-console: ## the figures of the console, each with its goal: JOBS=1000000 on both stores, and Chromium (half an hour)
	scripts/setup
	scripts/console
	PERDURE_TEST_REQUIRE_POSTGRES=1 PERDURE_TEST_REQUIRE_NODE=1 PERDURE_TEST_REQUIRE_CHROMIUM=1 \
		$(GO) test -count=1 -timeout 0 -v ./e2e/figures -jobs $(JOBS) -tab $(TAB) -out $(CURDIR)/bin/test-console

TAB ?= 1h
faults: ## the rows of the fault matrix (docs/reliability.md) with their tests; one row: make faults ROW=F042
	@$(GO) test -c -o bin/docs.test ./docs
	@cd docs && ../bin/docs.test -row '$(or $(ROW),all)'

lint: ## golangci-lint with the rules of .golangci.yaml, and the phrases of internal/wording/phrases.tsv
	$(GO) run ./internal/wording
	$(GO) tool -modfile=tools/go.mod golangci-lint run ./...
	cd brokers/nats && $(GO) tool -modfile=../../tools/go.mod golangci-lint run ./...

pictures: ## draw docs/pictures from the code; look at what has changed
	$(GO) run ./internal/pictures

bench: ## Perdure, its peers and the floor beneath them, in one interleaved run (hours); bench-quick in minutes
	scripts/setup bench
	cd bench && $(GO) run . --out ../bin/bench

bench-quick: ## the same in five minutes: River and DBOS alone, fewer rounds
	scripts/setup bench
	cd bench && $(GO) run . quick --out ../bin/bench

bench-micro: ## what the hot paths cost, with allocations
	$(GO) test -run '^$$' -bench . -benchmem . ./definition ./store/...

test-access: ## what access and traces cost, each with its goal: WRONG=10000 wrong tokens on both stores, token check, traces (minutes)
	scripts/setup
	for turn in 1 2 3 4 5 6; do $(GO) test -run '^$$' -bench 'Identify|ClaimWithToken|BenchmarkJob$$' -benchmem ./internal/access ./internal/rest ./tracing || exit 1; done
	PERDURE_TEST_REQUIRE_POSTGRES=1 $(GO) test -count=1 -timeout 0 -v ./e2e/figures -run WrongToken -wrong $(WRONG) -out $(CURDIR)/bin/test-access

WRONG ?= 10000

test-bulk: ## the figures of bulk acts, each with its goal: PARKED=100000 parked jobs undone on both stores (minutes)
	scripts/setup
	PERDURE_TEST_REQUIRE_POSTGRES=1 $(GO) test -count=1 -timeout 0 -v ./e2e/figures -run BulkFigures -parked $(PARKED) -out $(CURDIR)/bin/test-bulk

PARKED ?= 100000

test-schedules: ## fifty rules of schedules through ten years in twelve time zones, minute by minute (minutes)
	$(GO) test -count=1 -timeout 0 ./internal/kernel -run TestTimesAgreeWithAWalk -years 10

test-fair: ## the figures of fair share, each with its goal: a customer with WAITING=1000000 jobs, 10,000 shares, on both stores (minutes)
	scripts/setup
	PERDURE_TEST_REQUIRE_POSTGRES=1 $(GO) test -count=1 -timeout 0 -v ./e2e/figures -run FairFigures -waiting $(WAITING) -out $(CURDIR)/bin/test-fair

WAITING ?= 1000000

test-rates: ## how much of a rate is used if enough jobs wait, each with its goal, on both stores (minutes)
	scripts/setup
	PERDURE_TEST_REQUIRE_POSTGRES=1 $(GO) test -count=1 -timeout 0 -v ./e2e/figures -run RateFigures -ratetime 20s -out $(CURDIR)/bin/test-rates

test-children: ## the figures of child jobs, each with its goal: CHILDREN=100000 children of one step on PostgreSQL (minutes)
	scripts/setup
	PERDURE_TEST_REQUIRE_POSTGRES=1 $(GO) test -count=1 -timeout 0 -v ./e2e/figures -run ChildrenFigures -children $(CHILDREN) -out $(CURDIR)/bin/test-children

CHILDREN ?= 100000

images: ## the example of an album with IMAGES=10000 pictures, resized by child jobs (minutes)
	PERDURE_IMAGES=$(IMAGES) $(GO) test -count=1 -timeout 0 -v ./examples -run TestImages

IMAGES ?= 10000

fmt: ## gofmt
	gofmt -w $$(git ls-files '*.go')

clean: ## what the other targets left
	rm -rf bin console/build
	find console/dist -mindepth 1 ! -name missing.html -delete
