package partition

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestFormatsDocHasEveryName: docs/formats.md tells of every name of a file that we write.
func TestFormatsDocHasEveryName(t *testing.T) {
	doc, err := os.ReadFile("../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	for _, source := range []string{"filenames.go", "dirs.go", "../log/names.go", "../log/keep.go", "../cluster/store.go", "../inspect/import.go", "../inspect/import_place.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			g, ok := decl.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			ast.Inspect(g, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					return true
				}
				name, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				names++
				if !strings.Contains(string(doc), name) {
					t.Errorf("%s: %q is missing", source, name)
				}
				return true
			})
		}
	}
	if names < 30 {
		t.Errorf("only %d names were found", names)
	}
}
