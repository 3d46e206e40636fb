//go:build prove && race

package crashpoints_test

const race = true
