package report

import (
	"math"
	"slices"

	"github.com/go-analyze/charts"
)

// Lines as the chart of a scenario shows the rate of each sample over time.
const Lines = "lines"

const chartWidth = 860

// chart draws a scenario as SVG; nil if there is nothing to draw.
func (s *Scenario) chart() ([]byte, error) {
	metric := s.Chart
	if metric == "" {
		metric = Rate
	}
	switch {
	case s.Chart == Lines:
		return s.lines()
	case len(s.Variants) == 1:
		return s.bars(metric)
	}
	return s.groups(metric)
}

func render(height int, draw func(*charts.Painter) error) ([]byte, error) {
	p := charts.NewPainter(charts.PainterOptions{OutputFormat: charts.ChartOutputSVG, Width: chartWidth, Height: height})
	if err := draw(p); err != nil {
		return nil, err
	}
	return p.Bytes()
}

// bars are the contestants of one comparison, one below the other.
func (s *Scenario) bars(metric string) ([]byte, error) {
	var names []string
	var values []float64
	for _, x := range slices.Backward(s.Variants[0].Series) { // the axis begins at the bottom
		if st, ok := x.Stats[metric]; ok {
			names, values = append(names, x.Contestant), append(values, st.Median)
		}
	}
	if len(values) == 0 {
		return nil, nil
	}
	o := charts.NewBarChartOptionWithData([][]float64{values})
	o.Horizontal = true
	o.CategoryAxis.Labels = names
	o.ValueFormatter = Figure
	o.Legend.Show = charts.Ptr(false)
	o.SeriesList[0].Label.Show = charts.Ptr(true)
	o.SeriesList[0].Label.ValueFormatter = Figure
	o.Padding = charts.NewBox(10, 10, 60, 10)
	return render(60+32*len(values), func(p *charts.Painter) error { return p.BarChart(o) })
}

// groups are the contestants together, for each comparison.
func (s *Scenario) groups(metric string) ([]byte, error) {
	var names, variants []string
	for _, v := range s.Variants {
		for _, x := range v.Series {
			if _, ok := x.Stats[metric]; ok && !slices.Contains(names, x.Contestant) {
				names = append(names, x.Contestant)
			}
			if _, ok := x.Stats[metric]; ok && !slices.Contains(variants, v.Name) {
				variants = append(variants, v.Name)
			}
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	slices.Reverse(variants) // the axis begins at the bottom
	slices.Reverse(names)
	values := make([][]float64, len(names))
	for i := range names {
		values[i] = make([]float64, len(variants))
	}
	for _, v := range s.Variants {
		for _, x := range v.Series {
			if st, ok := x.Stats[metric]; ok {
				values[slices.Index(names, x.Contestant)][slices.Index(variants, v.Name)] = st.Median
			}
		}
	}
	o := charts.NewBarChartOptionWithData(values)
	o.Horizontal = true
	o.CategoryAxis.Labels = variants
	o.ValueFormatter = Figure
	o.Legend.SeriesNames = names
	o.Padding = charts.NewBox(10, 10, 60, 10)
	return render(90+len(variants)*(14+11*len(names)), func(p *charts.Painter) error { return p.BarChart(o) })
}

// lines are the samples of every series, one after the other.
func (s *Scenario) lines() ([]byte, error) {
	var names []string
	var values [][]float64
	longest := 0
	for _, v := range s.Variants {
		for _, x := range v.Series {
			var line []float64
			for _, sample := range x.Samples {
				line = append(line, sample[Rate])
			}
			longest = max(longest, len(line))
			names, values = append(names, v.Name+": "+x.Contestant), append(values, line)
		}
	}
	if longest == 0 {
		return nil, nil
	}
	labels := make([]string, longest)
	for i := range labels {
		labels[i] = Figure(float64(i+1) * s.Step)
	}
	for i, line := range values {
		for len(line) < longest {
			line = append(line, math.MaxFloat64) // the library's word for no value
		}
		values[i] = line
	}
	o := charts.NewLineChartOptionWithData(values)
	o.XAxis.Labels = labels
	o.ValueFormatter = Figure
	o.Legend.SeriesNames = names
	o.Padding = charts.NewBox(10, 10, 10, 10)
	return render(420, func(p *charts.Painter) error { return p.LineChart(o) })
}
