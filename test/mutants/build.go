package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// selector is the environment variable that says which mutant a test binary is: its number, counted from one. Without it the binary is
// the sound engine.
const selector = "PGMIRROR_MUTANT"

// schemata are the files of package mirror with the functions of all mutants in them: beside each function that a mutant breaks stands
// its broken copy, under a name with the mutant's number, and the function begins by asking which of them is meant. So all mutants are
// built at once.
type schemata struct {
	files    map[string]*soundFile // by name
	dispatch map[string]string     // what functions begin with, by file and function
	copies   map[string]string     // what is added to each file
	imports  map[string]string     // the same, imports
}

// soundFile is a file as it is.
type soundFile struct {
	text  string
	decls map[string]declaration
}

// declaration is a declaration outside functions.
type declaration struct {
	text string
	fn   *ast.FuncDecl // nil for what is no function
	at   int           // offset of its text in the file
	base int           // position of the file's first byte
	name string        // without the receiver
}

func newSchemata() *schemata {
	return &schemata{files: map[string]*soundFile{}, dispatch: map[string]string{}, copies: map[string]string{}, imports: map[string]string{}}
}

// add takes the mutant with the number n in.
func (s *schemata) add(root string, n int, m mutant) error {
	broken := map[string]string{}
	for _, e := range m.edits {
		if err := s.read(root, e.file); err != nil {
			return err
		}
		text, ok := broken[e.file]
		if !ok {
			text = s.files[e.file].text
		}
		if n := strings.Count(text, e.old); n != 1 {
			return fmt.Errorf("the text to replace is %d times in %s:\n%s", n, e.file, e.old)
		}
		broken[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	for file, text := range broken {
		if err := s.compare(file, text, n); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func (s *schemata) read(root, file string) error {
	if s.files[file] != nil {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(root, "mirror", file))
	if err != nil {
		return err
	}
	decls, _, err := declarations(file, string(text))
	s.files[file] = &soundFile{string(text), decls}
	return err
}

// compare takes in how the broken text of a file differs from the sound one.
func (s *schemata) compare(file, text string, n int) error {
	decls, imports, err := declarations(file, text)
	if err != nil {
		return err
	}
	for _, path := range imports {
		line := "import " + path + "\n"
		if !strings.Contains(s.files[file].text, path) && !strings.Contains(s.imports[file], line) {
			s.imports[file] += line
		}
	}
	suffix := fmt.Sprintf("__%d", n)
	var added []string // names of declarations that only the mutant has
	for key, d := range decls {
		if _, ok := s.files[file].decls[key]; !ok {
			added = append(added, d.name)
		}
	}
	changed := false
	for key, d := range decls {
		sound, ok := s.files[file].decls[key]
		if ok && sound.text == d.text {
			continue
		}
		changed = true
		if ok && d.fn == nil {
			return fmt.Errorf("the mutant changes %s, which is no function", key)
		}
		copied := d.text
		if ok {
			call, err := sound.call(suffix)
			if err != nil {
				return err
			}
			s.dispatch[file+" "+key] += fmt.Sprintf("\n\tif mutantOn == %d {\n\t\t%s\n\t}", n, call)
			name := int(d.fn.Name.End()) - d.base - d.at
			copied = d.text[:name] + suffix + d.text[name:]
		}
		for _, name := range added {
			copied = regexp.MustCompile(`\b`+name+`\b`).ReplaceAllString(copied, name+suffix)
		}
		s.copies[file] += "\n" + copied + "\n"
	}
	if !changed {
		return fmt.Errorf("the mutant changes nothing")
	}
	return nil
}

// declarations finds a file's declarations, by their receiver and name, and the paths it imports, in quotes.
func declarations(file, text string) (decls map[string]declaration, imports []string, err error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	for _, i := range parsed.Imports {
		imports = append(imports, i.Path.Value)
	}
	base := int(parsed.FileStart)
	decls = map[string]declaration{}
	for _, decl := range parsed.Decls {
		from, to := int(decl.Pos())-base, int(decl.End())-base
		d := declaration{text: text[from:to], at: from, base: base}
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			d.fn, d.name = decl, decl.Name.Name
			key := d.name
			if decl.Recv != nil {
				t := decl.Recv.List[0].Type
				key = text[int(t.Pos())-base:int(t.End())-base] + "." + key
			}
			decls[key] = d
		case *ast.GenDecl:
			if decl.Tok == token.IMPORT {
				continue
			}
			switch spec := decl.Specs[0].(type) {
			case *ast.TypeSpec:
				d.name = spec.Name.Name
			case *ast.ValueSpec:
				d.name = spec.Names[0].Name
			}
			decls[d.name] = d
		}
	}
	return decls, imports, nil
}

// call is the statement by which a function hands over to its copy.
func (d declaration) call(suffix string) (string, error) {
	var args []string
	for _, field := range d.fn.Type.Params.List {
		for _, name := range field.Names {
			if name.Name == "_" {
				return "", fmt.Errorf("a parameter of %s has no name", d.name)
			}
			arg := name.Name
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				arg += "..."
			}
			args = append(args, arg)
		}
		if len(field.Names) == 0 {
			return "", fmt.Errorf("a parameter of %s has no name", d.name)
		}
	}
	call := d.name + suffix + "(" + strings.Join(args, ", ") + ")"
	if d.fn.Recv != nil {
		call = d.fn.Recv.List[0].Names[0].Name + "." + call
	}
	if d.fn.Type.Results == nil {
		return call + "\n\t\treturn", nil
	}
	return "return " + call, nil
}

// write writes the files to work, and one that names them for the compiler's -overlay.
func (s *schemata) write(root, work string) (plan string, err error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	put := func(file, text string) error {
		to := filepath.Join(work, file)
		overlay.Replace[filepath.Join(root, "mirror", file)] = to
		return os.WriteFile(to, []byte(text), 0o600)
	}
	for file, sound := range s.files {
		text := sound.text
		for i := len(text); ; { // from the end, so that offsets stay right
			last, key := -1, ""
			for k, d := range sound.decls {
				if s.dispatch[file+" "+k] != "" && d.at < i && d.at > last {
					last, key = d.at, k
				}
			}
			if last < 0 {
				break
			}
			body := int(sound.decls[key].fn.Body.Lbrace) - sound.decls[key].base + 1
			text = text[:body] + s.dispatch[file+" "+key] + text[body:]
			i = last
		}
		clause := strings.Index(text, "package mirror\n") + len("package mirror\n")
		if err := put(file, text[:clause]+s.imports[file]+text[clause:]+s.copies[file]); err != nil {
			return "", err
		}
	}
	chooser := fmt.Sprintf("package mirror\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar mutantOn, _ = strconv.Atoi(os.Getenv(%q))\n", selector)
	if err := put("mutant_on.go", chooser); err != nil {
		return "", err
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	plan = filepath.Join(work, "overlay.json")
	return plan, os.WriteFile(plan, text, 0o600)
}
