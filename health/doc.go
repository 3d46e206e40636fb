// Package health tells how named outboxes are doing: healthy, degraded or
// unhealthy, by thresholds on the backlog's size and on the age of its oldest
// message.
//
//	var outboxes health.Registry
//	err := outboxes.Add("orders", store, &health.Thresholds{
//		UnhealthyCount: 100_000, DegradedAge: time.Minute, UnhealthyAge: 10 * time.Minute,
//	})
//	...
//	http.Handle("/health/", http.StripPrefix("/health", health.NewHandler(&outboxes, nil)))
//
// A relay that is behind is a matter for whoever is on call, and rarely a reason
// to restart a process or to take it out of a load balancer: degraded answers
// 200.
package health
