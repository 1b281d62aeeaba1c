package main

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseNames(t *testing.T) {
	for _, c := range []struct {
		list string
		want []string // nil: refused
	}{
		{"shop", []string{"shop"}},
		{"shop, Second ,third", []string{"shop", "Second", "third"}},
		{`"a,b","c ""d"""," e "`, []string{"a,b", `c "d"`, " e "}},
		{"é", []string{"é"}},
		{"", nil}, {",", nil}, {"a,", nil}, {"a,,b", nil}, {`"a`, nil}, {`a"b"`, nil}, {`""`, nil}, {"a,a", nil},
		{strings.Repeat("x", 63), []string{strings.Repeat("x", 63)}},
		{strings.Repeat("x", 64), nil}, {"a\x00", nil}, {"\xff", nil},
	} {
		got, err := parseNames(c.list)
		if (err != nil) != (c.want == nil) || err == nil && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: got %q, %v; want %q", c.list, got, err, c.want)
		}
	}
}

// The default slot name keeps a-z, 0-9 and _, lowers upper case, makes all else _, and fits; it is always a legal one.
func TestSlotFor(t *testing.T) {
	for database, want := range map[string]string{
		"shop": "pgmirror_shop", "My-Shop 2": "pgmirror_my_shop_2", "Größe": "pgmirror_gr__e", "": "pgmirror_",
		strings.Repeat("d", 63): "pgmirror_" + strings.Repeat("d", 54),
	} {
		got := slotFor(database)
		if got != want {
			t.Errorf("%q: got %q, want %q", database, got, want)
		}
		if err := checkSlotName(got); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "A", "a-b", "a b", "é", strings.Repeat("a", 64), "a'; drop table t; --"} {
		if checkSlotName(bad) == nil {
			t.Errorf("%q was taken as a slot name", bad)
		}
	}
}

func TestParseMemory(t *testing.T) {
	machine := func() (int64, error) { return 8 << 30, nil }
	for text, want := range map[string]int64{
		"1048576": 1 << 20, "512MiB": 512 << 20, "2GB": 2e9, "2 GiB": 2 << 30, "1000kB": 0, "1500KB": 1.5e6, "1TiB": 1 << 40, "2000000B": 2e6,
		"25%": 2 << 30, "0.5 %": 8 << 30 / 200, "90%": 8 << 30 * 9 / 10,
		"": 0, "%": 0, "0%": 0, "91%": 0, "-1%": 0, "NaN%": 0, "1MB": 0, "0": 0, "-5GB": 0, "GB": 0, "1.5GB": 0, "9223372036854775807TB": 0, "9000000TiB": 0, "2gb": 0,
	} {
		got, err := parseMemory(text, machine)
		if (err != nil) != (want == 0) || err == nil && got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestMemTotal(t *testing.T) {
	got, ok := memTotal("MemTotal:       24689764 kB\nMemFree:        23000000 kB\n")
	if !ok || got != 24689764*1024 {
		t.Errorf("got %d, %v", got, ok)
	}
	for _, bad := range []string{"", "MemTotal: x kB\n", "MemTotal: 1 MB\n", "MemFree: 1 kB\n"} {
		if _, ok := memTotal(bad); ok {
			t.Errorf("%q was taken", bad)
		}
	}
}

// No message about a source that cannot be read repeats any part of its password.
func TestSourceFaultsKeepSecrets(t *testing.T) {
	const password = "hunter2Secret"
	for _, source := range []string{
		"postgres://u:" + password + "@h:notaport/d",
		"postgres://u:" + password + "@h:5432:5433/d",
		"postgres://u:" + password + "@[h/d",
		"postgres://u:" + password + "%zz@h/d",
		"postgres://u:p@" + password + ":x@h/d",
		"postgresql://u:" + password + "@h/d?sslmode=" + password,
		"host=h password=" + password + " port=x",
		"host=h password='" + password,
		"host=h password = '" + password + "' sslmode=bogus",
		"host=h connect_timeout=" + password,
		"host=h target_session_attrs=" + password,
		password,
		"=" + password,
	} {
		s := settings{Source: source}
		_, err := s.target()
		if err == nil {
			t.Errorf("%q was taken", source)
			continue
		}
		for i := 0; i+5 <= len(password); i++ {
			if strings.Contains(err.Error(), password[i:i+5]) {
				t.Errorf("the message repeats the password: %v", err)
				break
			}
		}
	}
}

// The database, and with it the slot's default name, is found in every libpq form.
func TestTarget(t *testing.T) {
	for _, name := range []string{"PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE", "PGSERVICEFILE"} {
		t.Setenv(name, "")
	}
	if _, err := (&settings{}).target(); err == nil || !strings.Contains(err.Error(), "source is not set") {
		t.Errorf("an empty source: %v", err)
	}
	for _, c := range []struct{ source, slot, wantDatabase, wantSlot string }{
		{"postgres://u@h/Shop", "", "Shop", "pgmirror_shop"},
		{"postgresql://u@h/my%20db?sslmode=verify-full", "", "my db", "pgmirror_my_db"},
		{"host=/tmp dbname='a b' user=u", "", "a b", "pgmirror_a_b"},
		{"host=h user=only", "", "only", "pgmirror_only"},
		{"postgres://u@h/shop", "other_slot", "shop", "other_slot"},
	} {
		got, err := (&settings{Source: c.source, Slot: c.slot}).target()
		if err != nil || got.database != c.wantDatabase || got.slot != c.wantSlot {
			t.Errorf("%q: got %q, %q, %v", c.source, got.database, got.slot, err)
		}
	}
	t.Setenv("PGHOST", "/tmp")
	t.Setenv("PGDATABASE", "from_env")
	if got, err := (&settings{}).target(); err != nil || got.slot != "pgmirror_from_env" {
		t.Errorf("from PG*: got %+v, %v", got, err)
	}
}
