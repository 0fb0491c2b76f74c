package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// version is what -ldflags "-X main.version=..." says; builds without it ask the build information.
var version string

// versionLine is what --version prints.
func versionLine() string {
	v, revision := describe()
	if revision != "" {
		v += " (" + revision + ")"
	}
	return fmt.Sprintf("oncelog %s %s %s/%s", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// describe gives the version and the revision of the sources, "" if that is not known.
func describe() (v, revision string) {
	v = version
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return orDevel(v), ""
	}
	if v == "" && info.Main.Version != "(devel)" {
		v = info.Main.Version
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			revision += " with changes"
		}
	}
	return orDevel(v), revision
}

func orDevel(v string) string {
	if v == "" {
		return "devel"
	}
	return v
}

// buildInfo is a metric that says which build this is.
func buildInfo() prometheus.Collector {
	v, revision := describe()
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "oncelog_build_info",
		Help:        "Always 1; the labels say which build of the broker this is.",
		ConstLabels: prometheus.Labels{"version": v, "revision": revision, "goversion": runtime.Version()},
	})
	g.Set(1)
	return g
}
