# make build   bin/pgmirror
# make test    everything the tests need, and all of them
# make test-versions   the end-to-end ones on PostgreSQL 14 to 18 (an hour or more); make test-versions VERSIONS="14 18" for some
# make demo    a throw-away PostgreSQL, mirrored under writes and compared with DuckDB's answers
# make soak    make sim; 10,000 values of every type through copy, stream, checkpoint and restart, and a transaction of 10 million rows; make soak SEED=n VALUES=n ROWS=n for others;
#              then two hours of steady writes and reads, watched for whatever grows, into docs/benchmarks.md; DURATION=10m RATE=n (row changes a second) OUT= (print it) for others
# make sim     2,000 seeds of whole mirrors in virtual time, and each call to the outside failing in turn; make sim SEEDS=n for others
# make crash   2,000 deaths of a mirror; make crash ROUNDS=n SEED=n for others
# make real    ten minutes of a business's whole schema under load, kills and stops; make real DURATION=1h SEED=n for others
# make bench   pgmirror beside what bounds it, into docs/benchmarks.md
# make bench-paper   the Retina paper's figures that bench has not, into the same document
# make bench-size    a table of 100 million rows, into the same document
# make bench-compare REV=…   the component benchmarks of a revision beside those of the work tree
# make fmt vet clean

SHELL   := /usr/bin/env bash -o pipefail
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null)$(shell git diff --quiet HEAD 2>/dev/null; test $$? -eq 1 && echo +)

# The race detector watches the pure Go packages. The others link DuckDB's C++, which it does not see, and run servers,
# which it would slow down several times.
RACE  := ./pgcdc/... ./globalindex/... ./deletion/... ./readstate/... ./iceberg/... ./mirror/...
PLAIN := ./cmd/... ./duckdb/... ./test/...

export CGO_ENABLED := 1

.PHONY: build test test-versions tools demo soak sim crash real bench bench-paper bench-size bench-compare fmt vet clean

build:
	go build -trimpath -ldflags '-X main.version=$(VERSION) -X main.commit=$(COMMIT)' -o bin/pgmirror ./cmd/pgmirror

tools:
	@test/setup/packages.sh
	@test/setup/venv.sh >/dev/null
	@test/setup/interop-java.sh >/dev/null

vet:
	go vet ./...
	@bad=$$(git ls-files -z '*.go' | xargs -0 gofmt -l); if [ -n "$$bad" ]; then echo "gofmt -w: $$bad" >&2; exit 1; fi

# Both halves run even if the first fails, so that one run shows everything; PLAIN one package at a time, because its tests
# measure and time out.
test: tools build vet
	@code=0; \
	go test -race -timeout 30m $(RACE) || code=$$?; \
	go test -timeout 60m -p 1 $(PLAIN) || code=$$?; \
	exit $$code

# Not a part of test, for its time.
test-versions: build
	@test/setup/test-versions.sh $(VERSIONS)

demo: build
	@test/setup/packages.sh postgres
	go build -o bin/demo ./test/demo
	bin/demo -pgmirror bin/pgmirror

soak: VALUES ?= 10000
soak: SEED ?= 1
soak: ROWS ?= 10000000
soak: DURATION ?= 2h
soak: RATE ?= 1000
soak: OUT ?= docs/benchmarks.md
soak: build sim
	@test/setup/packages.sh postgres
	PGMIRROR_E2E_LARGE_ROWS=$(ROWS) go test -timeout 4h -run TestLargeTransaction -v ./test/e2e
	go test -timeout 4h -run TestRoundTrip -v ./test/e2e -round.values=$(VALUES) -round.seed=$(SEED)
	go build -o bin/bench ./test/bench
	bin/bench soak -pgmirror bin/pgmirror -commit '$(VERSION)' -duration $(DURATION) -rate $(RATE) -seed $(SEED) -note '$(NOTE)' -out '$(OUT)'

sim: SEEDS ?= 2000
sim:
	go test -timeout 4h -run 'TestSimulation|TestEveryEffect' -v ./mirror -sim.seeds=$(SEEDS) -sim.every=1

crash: ROUNDS ?= 2000
crash: SEED ?= 1
crash:
	@test/setup/packages.sh postgres
	go test -timeout 4h -run TestMirrorSurvivesCrashes -v ./test/crash -crash.rounds=$(ROUNDS) -crash.seed=$(SEED)

real: DURATION ?= 10m
real: SEED ?= 1
real:
	@test/setup/packages.sh postgres
	go test -timeout 0 -run 'TestRealSchema$$' -v ./test/e2e -real.duration=$(DURATION) -real.seed=$(SEED)

# make bench SCALE=0.2 NOTE='a busy machine' for a short run.
SCALE ?= 1
NOTE  ?=

bench bench-paper bench-size: build
	@test/setup/packages.sh postgres
	go build -o bin/bench ./test/bench
	bin/bench -part $(@:bench-%=%) -pgmirror bin/pgmirror -commit '$(VERSION)' -scale $(SCALE) -note '$(NOTE)' -out docs/benchmarks.md

# make bench-compare REV=HEAD~5 BENCH='Apply|Write' COUNT=10 PACKAGES='mirror iceberg'
BENCH ?= .
COUNT ?= 10

bench-compare:
	@test/bench/compare.sh '$(REV)' '$(BENCH)' '$(COUNT)'

fmt:
	gofmt -w $$(git ls-files '*.go')

clean:
	rm -rf bin .cache
