# Everything here also works by hand; `make` lists the targets.
.DEFAULT_GOAL := help
GO ?= go
FUZZTIME ?= 10s
KILLS ?= 50

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

build: ## build the broker into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/broker ./cmd/broker

check: ## formatting, vet, staticcheck, layer rules and all tests: run it before every commit
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) test ./tests/arch
	$(GO) test ./...

race: ## all tests with the race detector, and a broker built with it
	$(GO) test -race ./...

fuzz: ## every fuzz target for FUZZTIME
	.ci/fuzz $(FUZZTIME)

crash: ## kill the broker KILLS times under load and check everything
	CRASH_KILLS=$(KILLS) $(GO) test -count=1 -timeout 20m -v ./tests/crash

docs: ## write docs/compatibility.md anew from the API table
	$(GO) test ./server -run TestCompatibilityPage -update-docs

image: ## build the container image oncelog:dev
	docker build -t oncelog:dev .

bench-compare: ## benchmarks of REF and of the working tree (needs benchstat)
	.ci/bench-compare $(or $(REF),main)

ci: ## what the CI does
	.ci/run

.PHONY: help build check race fuzz crash docs image bench-compare ci
