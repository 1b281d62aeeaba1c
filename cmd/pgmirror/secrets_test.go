package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A config file or pass file that others may read is told when a password or token comes from it; unknown variables are told, with what may be meant.
func TestOpenSecrets(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const pass = "h:5432:*:u:secret\n"
	for name, c := range map[string]struct {
		config, pass   string
		configMode     os.FileMode
		passMode       os.FileMode
		environ        []string
		wantConf, want bool
	}{
		"all closed":          {"source: postgres://u:x@h/d\n", pass, 0o600, 0o600, nil, false, false},
		"config":              {"source: postgres://u:x@h/d\n", "", 0o644, 0o600, nil, true, false},
		"config, no password": {"source: postgres://u@h/d\n", "", 0o644, 0o600, nil, false, false},
		"token":               {"token: 0123456789abcdef\n", "", 0o640, 0o600, []string{"PGMIRROR_SOURCE=postgres://u@h/d"}, true, false},
		"pass file":           {"source: postgres://u@h/d\n", pass, 0o644, 0o604, nil, false, true},
		"keywords":            {"source: host=h user=u password = x\n", "", 0o644, 0o600, nil, true, false},
		"overridden":          {"source: postgres://u:x@h/d\n", "", 0o644, 0o600, []string{"PGMIRROR_SOURCE=postgres://u:x@h/d"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			config, passFile := write("mirror.yaml", c.config, c.configMode), write("pass", c.pass, c.passMode)
			t.Setenv("PGPASSFILE", passFile)
			t.Setenv("PGPASSWORD", "")
			s, err := loadSettings(config, c.environ, flagValues{})
			if err != nil {
				t.Fatal(err)
			}
			a := &app{program: program{environ: append(c.environ, "PGPASSFILE="+passFile)}}
			got := a.openSecrets(s)
			if slices.Contains(got, config) != c.wantConf || slices.Contains(got, passFile) != c.want {
				t.Errorf("%q", got)
			}
		})
	}
	s, err := loadSettings(write("empty.yaml", "", 0o600), []string{"PGMIRROR_PUBLICATIONS=p", "PGMIRROR_CONFIG=", "PGMIRROR_NONSENSE=1", "PGMIRROR_SLOT=s"}, flagValues{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"PGMIRROR_NONSENSE", "PGMIRROR_PUBLICATIONS, did you mean publication?"}; !slices.Equal(s.unknown, want) {
		t.Errorf("%q, want %q", s.unknown, want)
	}
}
