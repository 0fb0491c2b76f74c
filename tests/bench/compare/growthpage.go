package main

import (
	"encoding/json"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

const (
	growthBegin = "<!-- growth: begin -->"
	growthEnd   = "<!-- growth: end -->"
)

// growthReport is all curves.
type growthReport struct {
	Date, Machine string
	Curves        []curve
}

// bend is how much more the dearest point costs than the cheapest one before it.
func (c curve) bend() float64 {
	least, bend := math.Inf(1), 1.0
	for _, p := range c.Points {
		least = min(least, p.CPU)
		bend = max(bend, p.CPU/least)
	}
	return bend
}

func (g growthReport) table() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, c := range g.Curves {
		for _, p := range c.Points {
			fmt.Fprintf(t, "%s\t%s\t%d\tCPU µs %s\tp50 µs %s\n", c.Dimension, c.Broker, p.N, number(p.CPU), number(p.Latency))
		}
	}
	t.Flush()
	return b.String()
}

// writePage puts the curves into a page, and the chart and all figures beside it.
func (g growthReport) writePage(name string) error {
	base := beside(name) + "-growth"
	data, err := json.MarshalIndent(g, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(base+".json", append(data, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(base+".svg", []byte(g.chart()), 0o644); err != nil {
		return err
	}
	return replaceBetween(name, growthBegin, growthEnd, g.markdown(base+".svg"))
}

func (g growthReport) markdown(chart string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured %s on %s. A point is the median of %d rounds of %d requests, one at a time.\n\n", g.Date, g.Machine, probeRounds, probes)
	fmt.Fprintf(&b, "![Cost of a request as a broker grows](%s)\n\n", filepath.Base(chart))
	b.WriteString("| More and more | Request | Broker | CPU µs at each size | Most to least before |\n|---|---|---|---|---|\n")
	for _, c := range g.Curves {
		var points []string
		for _, p := range c.Points {
			points = append(points, fmt.Sprintf("%s: %s", short(p.N), number(p.CPU)))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", c.Dimension, c.About, c.Broker, strings.Join(points, ", "), number(c.bend()))
	}
	b.WriteString("\n")
	return b.String()
}

// short is a count in few letters.
func short(n int) string {
	if n >= 1000 {
		return fmt.Sprint(n/1000, "k")
	}
	return fmt.Sprint(n)
}

const (
	panelWide, panelHigh = 280, 190
	panelsAcross         = 3
	plotLeft, plotTop    = 44, 30
	plotWide, plotHigh   = 220, 120
)

// chart is a panel for each dimension: processor time from 0 up, size in decades.
func (g growthReport) chart() string {
	var names []string
	panels := map[string][]curve{}
	for _, c := range g.Curves {
		if panels[c.Dimension] == nil {
			names = append(names, c.Dimension)
		}
		panels[c.Dimension] = append(panels[c.Dimension], c)
	}
	rows := (len(names) + panelsAcross - 1) / panelsAcross
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", panelsAcross*panelWide, rows*panelHigh)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/>`+"\n")
	for i, name := range names {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i%panelsAcross*panelWide, i/panelsAcross*panelHigh)
		drawPanel(&b, name, panels[name])
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func drawPanel(b *strings.Builder, name string, curves []curve) {
	top, last := 0.0, 1
	for _, c := range curves {
		for _, p := range c.Points {
			top, last = max(top, p.CPU), max(last, p.N)
		}
	}
	top *= 1.15
	decades := max(math.Log10(float64(last)), 1)
	x := func(n int) float64 { return plotLeft + plotWide*math.Log10(float64(max(n, 1)))/decades }
	y := func(cpu float64) float64 { return plotTop + plotHigh*(1-cpu/top) }
	fmt.Fprintf(b, `<text x="%d" y="16" font-weight="bold">%s</text>`, plotLeft, html.EscapeString(name))
	fmt.Fprintf(b, `<path d="M%d %d v%d h%d" fill="none" stroke="#999"/>`, plotLeft, plotTop, plotHigh, plotWide)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s µs</text><text x="%d" y="%d" text-anchor="end">0</text>`+"\n", plotLeft-3, plotTop+8, number(top), plotLeft-3, plotTop+plotHigh)
	for i, c := range curves {
		color := "#4a7"
		if c.Broker != "oncelog" {
			color = "#89b"
		}
		var points []string
		for _, p := range c.Points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(p.N), y(p.CPU)))
			if i == 0 {
				fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x(p.N), plotTop+plotHigh+14, short(p.N))
			}
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), color)
	}
}
