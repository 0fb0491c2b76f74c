package server

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var updateDocs = flag.Bool("update-docs", false, "write the APIs of docs/compatibility.md anew")

const compatibilityPage = "../docs/compatibility.md"

// The section of the page that comes from the API table. The other one is written by tests/suites/matrix.
const (
	apisBegin = "<!-- apis: written by make docs -->\n"
	apisEnd   = "<!-- end of apis -->\n"
)

// kafkaAPIs are what Apache Kafka 4.4 serves on its brokers' listeners: key, lowest and highest version.
var kafkaAPIs = [][3]int16{
	{0, 3, 13}, {1, 4, 18}, {2, 1, 11}, {3, 0, 13}, {8, 2, 10}, {9, 1, 10}, {10, 0, 6}, {11, 0, 9}, {12, 0, 4}, {13, 0, 5}, {14, 0, 5}, {15, 0, 6},
	{16, 0, 5}, {17, 0, 1}, {18, 0, 5}, {19, 2, 7}, {20, 1, 6}, {21, 0, 2}, {22, 0, 5}, {23, 2, 4}, {24, 0, 5}, {25, 0, 4}, {26, 0, 5}, {27, 1, 2},
	{28, 0, 6}, {29, 1, 3}, {30, 1, 3}, {31, 1, 3}, {32, 1, 4}, {33, 0, 2}, {34, 1, 2}, {35, 1, 5}, {36, 0, 2}, {37, 0, 3}, {38, 1, 3}, {39, 1, 2},
	{40, 1, 2}, {41, 1, 3}, {42, 0, 3}, {43, 0, 2}, {44, 0, 1}, {45, 0, 1}, {46, 0, 0}, {47, 0, 0}, {48, 0, 1}, {49, 0, 1}, {50, 0, 0}, {51, 0, 0},
	{55, 0, 2}, {57, 0, 2}, {60, 0, 2}, {61, 0, 0}, {64, 0, 0}, {65, 0, 0}, {66, 0, 2}, {68, 0, 1}, {69, 0, 1}, {71, 0, 0}, {72, 0, 0}, {74, 0, 1},
	{75, 0, 0}, {76, 1, 1}, {77, 1, 1}, {78, 1, 2}, {79, 1, 2}, {80, 0, 1}, {81, 0, 0}, {83, 0, 0}, {84, 0, 0}, {85, 0, 1}, {86, 0, 0}, {87, 0, 1},
	{88, 0, 1}, {89, 0, 1}, {90, 0, 1}, {91, 0, 0}, {92, 0, 0}, {93, 0, 0}, {94, 0, 0},
}

// The page in docs says what the API table says.
func TestCompatibilityPage(t *testing.T) {
	page, err := os.ReadFile(compatibilityPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), apisBegin)
	got, after, ok2 := strings.Cut(rest, apisEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no section for the APIs", compatibilityPage)
	}
	want := compatibility()
	if got == want {
		return
	}
	if !*updateDocs {
		t.Fatalf("%s is not what the API table says; write it anew by: make docs", compatibilityPage)
	}
	if err := os.WriteFile(compatibilityPage, []byte(before+apisBegin+want+apisEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// No row promises what Kafka doesn't have.
func TestAPIsAreKafkas(t *testing.T) {
	kafka := map[int16][3]int16{}
	for _, k := range kafkaAPIs {
		kafka[k[0]] = k
	}
	for _, row := range apis {
		if k, ok := kafka[row.key]; !ok || row.min < k[1] || row.max > k[2] {
			t.Errorf("%s %d-%d: Apache Kafka has %d-%d", kmsg.NameForKey(row.key), row.min, row.max, k[1], k[2])
		}
	}
}

// Each API that differs from Kafka's says so in its file and is on the page of differences.
func TestDifferencesPage(t *testing.T) {
	page, err := os.ReadFile("../docs/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ToLower(string(page))
	files, err := filepath.Glob("[0-9][0-9]_*.go")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files of APIs, %v", len(files), err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(source), "// Where we differ") {
			continue
		}
		var key int16
		fmt.Sscanf(file, "%d_", &key)
		if name := kmsg.NameForKey(key); !strings.Contains(text, strings.ToLower(name)) {
			t.Errorf("%s differs from Kafka, and docs/differences.md does not mention %s", file, name)
		}
	}
}

func compatibility() string {
	var b strings.Builder
	served := 0
	for _, k := range kafkaAPIs {
		if apiOf(k[0]) != nil {
			served++
		}
	}
	fmt.Fprintf(&b, `## APIs

Written from the API table by `+"`make docs`"+`. Compared is what Apache Kafka 4.4 serves on its brokers' listeners: %d APIs, of
which Oncelog has %d. An API or a version that is not served closes the connection, as in Kafka, and is no part of ApiVersions. How
answers differ is in [differences.md](differences.md).

| key | API | versions | Apache Kafka 4.4 |
|---|---|---|---|
`, len(kafkaAPIs), served)
	for _, k := range kafkaAPIs {
		ours := "–"
		if row := apiOf(k[0]); row != nil {
			ours = span(row.min, row.max)
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", k[0], kmsg.NameForKey(k[0]), ours, span(k[1], k[2]))
	}
	return b.String()
}

func span(low, high int16) string {
	if low == high {
		return fmt.Sprint(low)
	}
	return fmt.Sprintf("%d–%d", low, high)
}
