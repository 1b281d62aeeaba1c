package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"pgmirror/pgcdc"
)

// writeConfig writes a config file and returns its path.
func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mirror.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A flag wins over the environment, which wins over the file, which wins over the default.
func TestSettingsPrecedence(t *testing.T) {
	file := writeConfig(t, "checkpoint_interval: 11s\nbatch_rows: 100\nflush_workers: 3\npublication: [a, 'b,c']\n")
	env := []string{"PGMIRROR_BATCH_ROWS=200", "PGMIRROR_FLUSH_WORKERS=4", "HOME=/x", "PGMIRROR_LISTEN=127.0.0.1:1"}
	s, err := loadSettings(file, env, flagValues{"flush_workers": "5"})
	if err != nil {
		t.Fatal(err)
	}
	if s.CheckpointInterval != 11*time.Second || s.BatchRows != 200 || s.FlushWorkers != 5 || s.Listen != "127.0.0.1:1" || s.CatalogPoll != 2*time.Second {
		t.Errorf("got %+v", s)
	}
	if want := []string{"a", "b,c"}; !reflect.DeepEqual(s.Publications, want) {
		t.Errorf("publications are %q, want %q", s.Publications, want)
	}
}

// YAML's word null, with or without quotes, is the rule of that name.
func TestRuleNullNeedsNoQuotes(t *testing.T) {
	for _, text := range []string{"on_unrepresentable: null\n", "on_unrepresentable: 'null'\n"} {
		s, err := loadSettings(writeConfig(t, text), nil, nil)
		if err != nil || s.OnUnrepresentable != "null" {
			t.Errorf("%s gives %v, %v", strings.TrimSpace(text), s, err)
		}
	}
	for _, text := range []string{"on_unrepresentable:\n", "source: null\n"} {
		if _, err := loadSettings(writeConfig(t, text), nil, nil); err == nil {
			t.Errorf("%s is taken", strings.TrimSpace(text))
		}
	}
}

// With nothing set the documented defaults hold.
func TestSettingsDefaults(t *testing.T) {
	here := t.TempDir()
	t.Chdir(here)
	s, err := loadSettings("", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	machine, err := machineMemory()
	if err != nil {
		t.Fatal(err)
	}
	want := settings{
		Data: filepath.Join(here, "pgmirror-data"), Listen: "127.0.0.1:8181", CheckpointInterval: 30 * time.Second, BatchRows: 8192, FlushWorkers: 2,
		CopyWorkers: s.CopyWorkers, Memory: machine / 4, MinFreeDisk: diskRule{auto: true}, MaxSlotWAL: 16 << 30, OnMaxSlotWAL: "warn", ReadStateLimit: 5 * time.Minute, ReadStateBytes: 16 << 30, CatalogPoll: 2 * time.Second, Compact: defaultCompaction, Snapshots: defaultRetention, OnUnrepresentable: "fail", LogFormat: "text",
	}
	if !reflect.DeepEqual(*s, want) {
		t.Errorf("got  %+v\nwant %+v", *s, want)
	}
	if s.CopyWorkers < 2 || s.CopyWorkers > 8 {
		t.Errorf("copy_workers is %d", s.CopyWorkers)
	}
}

// ./mirror.yaml is read without being named; a file that is named must exist, whoever names it.
func TestConfigFileIsFound(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("mirror.yaml", []byte("slot: from_here\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := loadSettings("", nil, nil); err != nil || s.Slot != "from_here" {
		t.Errorf("got %+v, %v", s, err)
	}
	other := writeConfig(t, "slot: from_elsewhere\n")
	if s, err := loadSettings("", []string{"PGMIRROR_CONFIG=" + other}, nil); err != nil || s.Slot != "from_elsewhere" {
		t.Errorf("got %+v, %v", s, err)
	}
	for _, c := range []struct {
		flag string
		env  []string
	}{{flag: "absent.yaml"}, {env: []string{"PGMIRROR_CONFIG=absent.yaml"}}} {
		if _, err := loadSettings(c.flag, c.env, nil); err == nil || !strings.Contains(err.Error(), "absent.yaml") {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

// Every fault of file, environment and flags is in one message, each with the place it comes from.
func TestSettingsFaultsTogether(t *testing.T) {
	file := writeConfig(t, strings.Join([]string{
		"slot: Not-A-Slot",         // 1
		"publications: shop",       // 2
		"copy-workers: 3",          // 3
		"batch_rows: [1, 2]",       // 4
		"token: short",             // 5
		"log_format: xml",          // 6
		"history:",                 // 7
		"checkpoint_interval: 30s", // right
		"memory: 10%",              // right
		"memory: 20%",              // 9
	}, "\n"))
	_, err := loadSettings(file, []string{"PGMIRROR_CATALOG_POLL=soon", "PGMIRROR_MEMORY=lots"}, flagValues{"flush_workers": "0", "listen": "8181"})
	if err == nil {
		t.Fatal("no fault was found")
	}
	text := err.Error()
	for _, want := range []string{
		"line 1: slot: \"Not-A-Slot\"",
		"line 2: unknown key \"publications\", did you mean publication?",
		"line 3: unknown key \"copy-workers\", did you mean copy_workers?",
		"line 4: batch_rows: expected one value",
		"line 5: token: must have",
		"line 6: log_format: \"xml\"",
		"line 7: history: expected one value",
		"line 10: memory is set twice",
		"PGMIRROR_CATALOG_POLL: \"soon\"",
		"PGMIRROR_MEMORY: \"lots\"",
		"--flush-workers: 0 is not between",
		"--listen: \"8181\"",
		"12 settings are wrong",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "short") {
		t.Error("the token is in the message")
	}
	var coded *exitError
	if !errors.As(err, &coded) || coded.code != exitUsage {
		t.Errorf("exit code of %v", err)
	}
}

// Whatever is not one flat mapping of settings is refused.
func TestParseConfigRefuses(t *testing.T) {
	for _, text := range []string{"- a\n- b\n", "just text", "a: b: c", "slot: {a: b}", "publication: [[a]]", "publication: {a: b}", "slot: a\n---\nslot: b\n",
		"? [a]\n: b\n", "slot: &x a\npublication: *x\n", "publication: [~]", "\tslot: a"} {
		if _, faults := parseConfig("f", []byte(text)); len(faults) == 0 {
			t.Errorf("%q was taken", text)
		}
	}
	for _, text := range []string{"", "# only a comment\n", "---\n"} {
		if values, faults := parseConfig("f", []byte(text)); len(faults) > 0 && text != "---\n" || len(values) > 0 {
			t.Errorf("%q: %v, %v", text, values, faults)
		}
	}
}

// Any bytes give settings or faults.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("slot: a\npublication: [a, b]\n"))
	f.Add([]byte("{slot: [x, *y], &y z: 1}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		values, faults := parseConfig("f", text)
		if len(faults) > 0 {
			return
		}
		for key := range values {
			if _, ok := settingOf(key); !ok {
				t.Errorf("unknown key %q without a fault", key)
			}
		}
	})
}

// A port that others reach needs a token.
func TestListenNeedsToken(t *testing.T) {
	token := "token: 0123456789abcdef\n"
	for _, c := range []struct {
		listen, more string
		ok           bool
	}{
		{"127.0.0.1:8181", "", true}, {"'[::1]:8181'", "", true}, {"localhost:0", "", true}, {"127.9.9.9:1", "", true}, {"off", "", true},
		{"0.0.0.0:8181", "", false}, {"':8181'", "", false}, {"'[::]:8181'", "", false}, {"mirror.example:8181", "", false}, {"192.168.1.5:8181", "", false},
		{"0.0.0.0:8181", token, true}, {"':8181'", token, true},
	} {
		_, err := loadSettings(writeConfig(t, "listen: "+c.listen+"\n"+c.more), nil, nil)
		if (err == nil) != c.ok {
			t.Errorf("listen %s with %q: %v", c.listen, c.more, err)
		}
	}
}

// Every setting has a flag on run but the secret one, which ps must not show.
func TestRunHasEveryFlag(t *testing.T) {
	run := (&app{flags: flagValues{}}).runCommand()
	for _, k := range settingTable {
		if has := run.Flags().Lookup(k.flagName()) != nil; has == k.secret {
			t.Errorf("flag of %s: %v", k.key, has)
		}
	}
}

// A repeated list flag adds up; a switch needs no value.
func TestFlagForms(t *testing.T) {
	values := flagValues{}
	cmd := &cobra.Command{}
	bindSettings(cmd, values)
	if err := cmd.ParseFlags([]string{"--publication", "a,b", "--publication=c", "--partial-publish", "--slot=x", "--slot=y"}); err != nil {
		t.Fatal(err)
	}
	s, err := loadSettings(writeConfig(t, ""), nil, values)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s.Publications, []string{"a", "b", "c"}) || !s.PartialPublish || s.Slot != "y" {
		t.Errorf("got %+v", s)
	}
}

// The setting types reads what a column's name may be, in the file, in the environment and from flags alike; what is wrong is said with its name.
func TestTypesSetting(t *testing.T) {
	column := func(schema, table, name string) pgcdc.ColumnName {
		return pgcdc.ColumnName{Schema: schema, Table: table, Column: name}
	}
	want := map[pgcdc.ColumnName]string{
		column("public", "orders", "price"): "decimal(18,4)", column("public", "orders", "Weight"): "double", column("Odd.Schema", `T"x`, "a=b,(c"): "text", column("s", "t", "n"): "decimal(38,0)",
	}
	file := "types:\n  public.orders.price: decimal(18,4)\n  public.orders.Weight: double\n  '\"Odd.Schema\".\"T\"\"x\".\"a=b,(c\"': text\n  s.t.n: decimal( 38 , 0 )\n"
	flat := `public.orders.price=decimal(18,4), public.orders.Weight=double,"Odd.Schema"."T""x"."a=b,(c"=text,s.t.n=decimal(38, 0)`
	again := ""
	for name, form := range want { // as messages write the names
		again += "," + name.String() + "=" + form
	}
	values, faults := parseConfig("f", []byte(file))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	for from, text := range map[string]string{"file": values["types"].text, "flag": flat, "names as they are written": again[1:]} {
		types, err := parseTypes(text)
		if err != nil {
			t.Fatalf("%s: %v", from, err)
		}
		got := map[pgcdc.ColumnName]string{}
		for name, form := range types {
			got[name] = form.String()
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", from, got, want)
		}
	}
	for text, part := range map[string]string{
		"public.t=text": "is not schema.table.column", "a.b.c.d=text": "is not schema.table.column", "a.b.c": "and a form", "a.b.c=text=text": "and a form", "a.b.c=varchar": `a.b.c: "varchar" is not one of`,
		"a.b.c=decimal(39,0)": "1 to 38", "a.b.c=decimal(5,6)": "0 to the precision", "a.b.c=decimal(0,0)": "1 to 38", "a.b.c=decimal(5": "is not one of", "a.b.c=decimal(5)": "is not one of",
		"a.b.c=text,a.b.c=double": "a.b.c is named twice", `a.b."c=text`: "open double quote", "a..c=text": "a name is empty", `a.b.c"d"=text`: "is not a name", "a.b.c=": "is not one of",
	} {
		if types, err := parseTypes(text); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, %v", text, types, err)
		}
	}
	for _, bad := range []string{"types: [a, b]", "types:\n  a.b.c:\n", "types:\n  a.b.c: [text]\n", "types:\n  a.b.c: {x: y}\n", "publication:\n  a: b\n"} {
		if values, faults := parseConfig("f", []byte(bad)); len(faults) != 1 || !strings.Contains(faults[0].Error(), "f line 1: ") {
			t.Errorf("%s: %v, %v", bad, values, faults)
		}
	}
}
