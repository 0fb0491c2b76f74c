package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "oncelog"

// layers is what may import what, of ours. An import that is not here is a mistake, or a new sentence in the commit that
// adds it. Dependencies point one way: from the socket down to the log. tests/ and examples/ are outside of it: they use
// the broker through its sockets.
var layers = map[string]string{
	"cmd/broker":       "config server console inspect protocol internal/vfs",
	"server":           "cluster partition coordinator txncoordinator groupcoordinator config controlmarkers protocol internal/vfs",
	"inspect":          "partition log idempotence controlmarkers cluster config protocol internal/vfs", // an import goes by a node's settings, as a start does
	"console":          "protocol",
	"partition":        "log idempotence controlmarkers config protocol internal/vfs",
	"txncoordinator":   "coordinator controlmarkers protocol",
	"groupcoordinator": "coordinator controlmarkers protocol",
	"coordinator":      "controlmarkers protocol",
	"cluster":          "config protocol",
	"log":              "protocol internal/vfs",
	"idempotence":      "controlmarkers protocol",
	"controlmarkers":   "protocol",
	"protocol":         "",
	"config":           "",
	"internal/vfs":     "",
}

// outside are the folders whose packages are no part of the broker: they may import the protocol and each other, never what
// the broker is made of.
var outside = map[string]string{
	"tests":    "protocol tests",
	"examples": "",
}

// file is one Go file of the tree.
type file struct {
	path string // slash-separated, from the root of the module
	ast  *ast.File
	test bool
}

func (f file) dir() string { return path.Dir(f.path) }

// tree reads every Go file of the module once.
func tree(t *testing.T) (*token.FileSet, []file) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []file
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); base == "testdata" || name != root && strings.HasPrefix(base, ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file{filepath.ToSlash(rel), parsed, strings.HasSuffix(name, "_test.go")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("found only %d Go files below %s", len(files), root)
	}
	return fset, files
}

// The packages form the graph in layers and no other. Tests may use what their package may, vfs, and the leaves.
func TestImportsFollowTheLayers(t *testing.T) {
	fset, files := tree(t)
	for _, f := range files {
		allowed, known := allowedFor(f.dir())
		if !known {
			t.Errorf("%s: folder %s is not in the table of layers", f.path, f.dir())
			continue
		}
		for _, spec := range f.ast.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			ours, ok := strings.CutPrefix(name, module+"/")
			if !ok || ours == f.dir() {
				continue
			}
			if f.test && (slices.Contains([]string{"protocol", "config", "controlmarkers", "internal/vfs"}, ours) || isDouble(ours)) {
				continue
			}
			if !slices.ContainsFunc(allowed, func(a string) bool { return ours == a || a == "tests" && strings.HasPrefix(ours, "tests/") }) {
				t.Errorf("%s: %s may not import %s (allowed: %s)", fset.Position(spec.Pos()), f.dir(), ours, strings.Join(allowed, " "))
			}
		}
	}
}

// isDouble tells if a package holds test doubles: coordinator/coordinatortest has those of coordinator. Such a package may use
// what its parent may, and the parent; only tests may use it.
func isDouble(dir string) bool { return path.Base(dir) == path.Base(path.Dir(dir))+"test" }

func allowedFor(dir string) (allowed []string, known bool) {
	if list, ok := layers[dir]; ok {
		return strings.Fields(list), true
	}
	if list, ok := layers[path.Dir(dir)]; ok && isDouble(dir) {
		return append(strings.Fields(list), path.Dir(dir)), true
	}
	top, _, _ := strings.Cut(dir, "/")
	if list, ok := outside[top]; ok {
		return strings.Fields(list), true
	}
	return nil, false
}

// The table itself has no cycle.
func TestLayersHaveNoCycle(t *testing.T) {
	state := map[string]int{} // 1 being visited, 2 done
	var visit func(string)
	visit = func(dir string) {
		if state[dir] == 1 {
			t.Fatalf("the table of layers has a cycle through %s", dir)
		}
		if state[dir] == 2 {
			return
		}
		state[dir] = 1
		for _, next := range strings.Fields(layers[dir]) {
			visit(next)
		}
		state[dir] = 2
	}
	for dir := range layers {
		visit(dir)
	}
}

// Logging is log/slog; package log is ours.
func TestStandardLogIsBanned(t *testing.T) {
	fset, files := tree(t)
	for _, f := range files {
		for _, spec := range f.ast.Imports {
			if spec.Path.Value == `"log"` {
				t.Errorf("%s: the standard log package is banned, use log/slog", fset.Position(spec.Pos()))
			}
		}
	}
}

// Nothing waits by sleeping: not the broker, and not its tests, which wait for what they wait for.
func TestNobodySleeps(t *testing.T) {
	fset, files := tree(t)
	for _, f := range files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
					if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" && !inBubble(f) {
						t.Errorf("%s: time.Sleep", fset.Position(call.Pos()))
					}
				}
			}
			return true
		})
	}
}

// inBubble tells if a file is a test that uses synctest, where sleeping moves the fake clock and costs nothing.
func inBubble(f file) bool {
	return f.test && slices.ContainsFunc(f.ast.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == `"testing/synctest"` })
}

// What is committed is finished.
func TestNothingIsLeftToDo(t *testing.T) {
	fset, files := tree(t)
	mark := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)
	for _, f := range files {
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				if m := mark.FindString(c.Text); m != "" {
					t.Errorf("%s: %s", fset.Position(c.Pos()), m)
				}
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Contains(lit.Value, "unwrit"+"ten") {
				t.Errorf("%s: something is not written yet", fset.Position(lit.Pos()))
			}
			return true
		})
	}
}

// Each package says in its doc.go what it is.
func TestPackagesHaveADoc(t *testing.T) {
	_, files := tree(t)
	documented := map[string]bool{}
	for _, f := range files {
		if path.Base(f.path) == "doc.go" {
			if f.ast.Doc == nil || !strings.HasPrefix(f.ast.Doc.Text(), "Package ") && f.ast.Name.Name != "main" {
				t.Errorf("%s: does not begin with a package comment", f.path)
			}
			documented[f.dir()] = true
		}
	}
	for dir := range dirsOf(files) {
		if !documented[dir] {
			t.Errorf("%s: has no doc.go", dir)
		}
	}
}

func dirsOf(files []file) map[string]bool {
	dirs := map[string]bool{}
	for _, f := range files {
		if !f.test {
			dirs[f.dir()] = true
		}
	}
	return dirs
}

// ARCHITECTURE.md draws the graph of layers, line by line as the table has it.
func TestArchitectureShowsTheLayers(t *testing.T) {
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for dir, list := range layers {
		line := strings.TrimRight(fmt.Sprintf("%-16s -> %s", dir, list), " ")
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("ARCHITECTURE.md lacks the line %q", line)
		}
	}
}
