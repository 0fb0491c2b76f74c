package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

const (
	chartLabel = 300 // width of the names
	chartPlot  = 480 // width of the bars
	chartLine  = 18  // height of a row
	chartFrom  = -2  // decades shown, around 1
	chartTo    = 2
)

// chart draws the ratios as bars from 1, on a logarithmic scale; a tick is what is to be reached.
func (r *report) chart() string {
	var rows []row
	for _, w := range r.rows {
		if w.ratio > 0 {
			rows = append(rows, w)
		}
	}
	height := (len(rows)+2)*chartLine + 10
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", chartLabel+chartPlot+70, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/>`+"\n")
	for d := chartFrom; d <= chartTo; d++ {
		x := chartX(math.Pow10(d))
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/><text x="%.1f" y="14" text-anchor="middle">%s</text>`+"\n",
			x, chartLine, x, height, x, number(math.Pow10(d)))
	}
	for i, w := range rows {
		w.draw(&b, (i+1)*chartLine+4)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func chartX(ratio float64) float64 {
	at := (math.Log10(ratio) - chartFrom) / (chartTo - chartFrom)
	return chartLabel + chartPlot*min(max(at, 0), 1)
}

func (w row) draw(b *strings.Builder, y int) {
	color := "#4a7"
	if _, met := w.met(); !met {
		color = "#c63"
	} else if len(w.goals) == 0 {
		color = "#89b"
	}
	one, x := chartX(1), chartX(w.ratio)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s, %s</text>`, chartLabel-8, y+12, html.EscapeString(w.load), html.EscapeString(w.figure))
	fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`, min(one, x), y+2, max(math.Abs(x-one), 1), chartLine-5, color)
	for _, g := range w.goals {
		if g.than == "" {
			at := chartX(max(g.most, g.least))
			fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#000" stroke-width="2"/>`, at, y, at, y+chartLine-1)
		}
	}
	fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", chartLabel+chartPlot+8, y+12, number(w.ratio))
}
