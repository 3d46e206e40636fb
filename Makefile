# modules.txt is the one list of modules. ARGS goes to go test:
#   make test ARGS='-run TestConformance -v'
MODULES := $(shell sed 's/\#.*//' modules.txt)
FUZZTIME ?= 10s
BIN := .bin
SQLITE335 := GOWORK=off CGO_CFLAGS=-O0

.PHONY: all
all: lint test

# All modules, then those outside the workspace: the program with the golden list of
# what it pulls in, and the oldest SQLite, whose C is compiled quickly. A binary of its own rather than go run, which would not hand on
# SIGTERM.
.PHONY: test
test:
	@go build -o $(BIN)/testrun ./integration/cmd/testrun
	@$(BIN)/testrun $(ARGS)
	@cd integration/consumer && GOWORK=off go test ./...
	@cd integration/sqlite335 && $(SQLITE335) go test -tags sqlite_json ./... && $(SQLITE335) go test ./...

# What depends on the version of PostgreSQL, on 16, 17 and 18, whose binaries
# come from npm; where npm does not answer it says so:
#   make test-postgres-versions ARGS='18.4'
.PHONY: test-postgres-versions
test-postgres-versions:
	@go build -o $(BIN)/pgversions ./integration/cmd/pgversions
	@$(BIN)/pgversions $(ARGS)

# What depends on the engine on MySQL itself, whose packages come with apt from Debian's
# unstable suite; where that does not answer it says so.
.PHONY: test-mysql
test-mysql:
	@go build -o $(BIN)/mysqlserver ./integration/cmd/mysqlserver
	@$(BIN)/mysqlserver $(ARGS)

.PHONY: lint
lint:
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "not formatted, run gofmt -w:"; echo "$$out"; exit 1; fi
	@set -e; for m in $(MODULES); do \
		echo "# lint $$m"; \
		(cd $$m && go vet ./... && GOWORK=off go mod tidy -diff); \
	done
	@cd integration/consumer && GOWORK=off go vet ./...
	@cd integration/sqlite335 && $(SQLITE335) go vet -tags sqlite_json ./... && $(SQLITE335) go vet ./... && GOWORK=off go mod tidy -diff
	@if command -v staticcheck >/dev/null; then \
		set -e; for m in $(MODULES); do (cd $$m && staticcheck ./...); done; \
	else echo "# staticcheck is not installed: skipped"; fi

.PHONY: build
build:
	CGO_ENABLED=0 go build -trimpath -o $(BIN)/postrider ./cmd/postrider

.PHONY: demo
demo:
	go run ./cmd/postrider demo $(ARGS)

# Directories of the packages with tests, of the module at hand.
TESTED := go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ./...

# Every fuzz target of every module, FUZZTIME each.
.PHONY: fuzz
fuzz:
	@set -e; for m in $(MODULES); do cd $(CURDIR)/$$m; for d in $$($(TESTED)); do \
		for f in $$(cat $$d/*_test.go | sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p'); do \
			echo "# fuzz $$d $$f"; \
			go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$d; \
		done; \
	done; done

# Golden files hold what the tests compare against; read the diff before you commit it.
.PHONY: golden-update
golden-update:
	@set -e; for m in $(MODULES); do cd $(CURDIR)/$$m; for d in $$($(TESTED)); do \
		if grep -q 'flag\.Bool("update"' $$d/*_test.go; then echo "# golden $$d"; go test $$d -update; fi; \
	done; done
	@cd integration/consumer && GOWORK=off go test . -update

.PHONY: clean
clean:
	rm -rf $(BIN)

# The statements for engines that do not run here against their grammars; where npm does
# not answer it says so.
.PHONY: grammar
grammar:
	@go build -o $(BIN)/grammar ./integration/cmd/grammar
	@$(BIN)/grammar

# The table of docs/engines.md, from the conformance suites on every engine that is
# at hand.
.PHONY: engines
engines:
	@go build -o $(BIN)/testrun ./integration/cmd/testrun
	@go build -o $(BIN)/engines ./integration/cmd/engines
	@$(BIN)/testrun exec $(BIN)/engines

# Postrider beside its rivals, within an hour on two cores; leave the machine
# alone meanwhile. Writes report.json and docs/performance.md:
#   make bench ARGS='-scenario drain,ordered'
#   make bench ARGS='-scenario mariadb -into docs/performance/report.json'
.PHONY: bench
bench:
	@go build -o $(BIN)/testrun ./integration/cmd/testrun
	@go build -o $(BIN)/bench ./bench
	@code=0; POSTRIDER_TEST_POSTGRES_SETTINGS='fsync=on full_page_writes=on shared_buffers=1GB max_wal_size=8GB' \
		POSTRIDER_TEST_MYSQL_SETTINGS='innodb_flush_log_at_trx_commit=1 innodb_buffer_pool_size=1G innodb_log_file_size=1G' \
		$(BIN)/testrun exec $(BIN)/bench $(ARGS) || code=$$?; \
		$(BIN)/bench -page docs/performance.md && exit $$code

# Mutants of the production source, each of which a proof must notice:
#   make mutants ARGS='-short'
#   make mutants ARGS='tombstones hold'
.PHONY: mutants
mutants:
	@go build -o $(BIN)/testrun ./integration/cmd/testrun
	@go build -o $(BIN)/mutants ./integration/cmd/mutants
	@$(BIN)/testrun exec $(BIN)/mutants $(ARGS)

# The long proofs, within an hour on two cores: as many seeds of the
# simulation as fit into PROVE_TIME, all mutants, relays among faults, crashes at
# every statement, histories, plans among two million rows.
PROVE_SEEDS ?= 100000
PROVE_TIME ?= 25m
.PHONY: prove
prove:
	go test ./relay -count=1 -timeout 60m -v -run 'TestSimulation$$' -sim.seeds=$(PROVE_SEEDS) -sim.for=$(PROVE_TIME)
	@$(MAKE) --no-print-directory mutants
	cd integration && POSTRIDER_PROVE=1 go test -count=1 -timeout 60m -v -run '^Test(Postgres|MySQL)Plans$$' ./sqlstore
	cd integration && POSTRIDER_PROVE=1 go test -tags prove -count=1 -timeout 60m -v ./chaos ./crashpoints ./histories ./inbox
